// AddressSpace: page-aligned ranges inside one reservation; first fit, coalescing. Not thread-safe. Bytes.
//
// First fit needs at most log2(n) times the live bytes for blocks of up to n pages (Robson 1971), so a reservation of
// 32 times the device's memory never runs out before the memory does.
#pragma once

#include <map>
#include <string>

#include "allocator/driver/vmm_driver.h"
#include "proto/model/units.h"

namespace stalloc {

class AddressSpace {
 public:
  AddressSpace(Address base, Bytes bytes);

  // 0 when no free range is that long. REQUIRES: bytes > 0.
  [[nodiscard]] Address Take(Bytes bytes);
  // REQUIRES: the range came from Take.
  void GiveBack(Address address, Bytes bytes);

  [[nodiscard]] Bytes free_bytes() const noexcept { return free_bytes_; }

 private:
  std::map<Address, Bytes> free_;  // disjoint, never touching
  Bytes free_bytes_;
};

}  // namespace stalloc
