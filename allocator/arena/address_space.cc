#include "allocator/arena/address_space.h"

#include <algorithm>
#include <iterator>

namespace stalloc {

AddressSpace::AddressSpace(Address base, Bytes bytes) : free_{{base, bytes}}, free_bytes_(bytes) {}

Address AddressSpace::Take(Bytes bytes) {
  const auto fit =
      std::find_if(free_.begin(), free_.end(), [bytes](const auto& range) { return range.second >= bytes; });
  if (fit == free_.end()) {
    return 0;
  }
  const auto [address, size] = *fit;
  auto next = free_.erase(fit);
  if (size > bytes) {
    free_.emplace_hint(next, address + bytes, size - bytes);
  }
  free_bytes_ -= bytes;
  return address;
}

void AddressSpace::GiveBack(Address address, Bytes bytes) {
  free_bytes_ += bytes;
  auto next = free_.lower_bound(address);
  if (next != free_.end() && address + bytes == next->first) {
    bytes += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == address) {
      before->second += bytes;
      return;
    }
  }
  free_.emplace_hint(next, address, bytes);
}

}  // namespace stalloc
