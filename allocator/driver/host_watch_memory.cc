#include "allocator/driver/host_watch_memory.h"

#include <algorithm>
#include <cstring>

namespace stalloc {

bool HostWatchMemory::Fill(Address begin, Bytes bytes, StreamHandle) noexcept {
  std::memset(reinterpret_cast<void*>(begin), kPattern, bytes);
  return true;
}

bool HostWatchMemory::Query(std::uint32_t ticket, Address begin, Bytes bytes, StreamHandle) noexcept {
  const auto* const first = reinterpret_cast<const unsigned char*>(begin);
  const auto* const other = std::find_if(first, first + bytes, [](unsigned char byte) { return byte != kPattern; });
  const bool changed = other != first + bytes;
  answers_[ticket] = {changed, static_cast<Bytes>(other - first), changed ? *other : kPattern};
  return true;
}

bool HostWatchMemory::Answered(std::uint32_t ticket, Answer* answer) noexcept {
  *answer = answers_[ticket];
  return true;
}

}  // namespace stalloc
