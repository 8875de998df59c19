// The address ranges of live blocks, which no new one may overlap. Logarithmic; not thread-safe. Bytes.
#pragma once

#include <iterator>
#include <map>

#include "allocator/driver/vmm_driver.h"
#include "proto/model/units.h"

namespace stalloc::bench {

class LiveRanges {
 public:
  // False, and nothing changes, where a live range has any of these bytes.
  [[nodiscard]] bool Add(Address begin, Bytes bytes) {
    const auto next = ends_.lower_bound(begin);
    if (next != ends_.end() && next->first < begin + bytes) return false;
    if (next != ends_.begin() && std::prev(next)->second > begin) return false;
    ends_.emplace_hint(next, begin, begin + bytes);
    return true;
  }
  // False: none begins there.
  [[nodiscard]] bool Remove(Address begin) { return ends_.erase(begin) == 1; }

 private:
  std::map<Address, Address> ends_;  // by begin
};

}  // namespace stalloc::bench
