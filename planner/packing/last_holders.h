// LastHolders: who held each byte of an arena last. Ranges are disjoint; bytes that nobody held are absent. A map from
// address to holder: a use costs O(log n) for each holder it meets, and holders are few since ranges are overwritten
// whole. Not thread-safe. Bytes.
#pragma once

#include <cstdint>
#include <iterator>
#include <map>

#include "proto/model/units.h"

namespace stalloc::planner {

class LastHolders {
 public:
  // Calls visit(holder, bytes) for every run of bytes of [begin, end) with one holder, then makes `holder` the holder
  // of all of it. The same holder may be visited more than once.
  template <typename Visit>
  void Take(Offset begin, Offset end, std::uint32_t holder, Visit visit) {
    Split(begin);
    Split(end);
    auto range = ranges_.lower_bound(begin);
    while (range != ranges_.end() && range->first < end) {
      visit(range->second.holder, range->second.end - range->first);
      range = ranges_.erase(range);
    }
    ranges_.emplace_hint(range, begin, Range{end, holder});
  }

 private:
  struct Range {
    Offset end = 0;
    std::uint32_t holder = 0;
  };

  void Split(Offset at) {
    auto range = ranges_.upper_bound(at);
    if (range == ranges_.begin()) return;
    range = std::prev(range);
    if (range->first < at && at < range->second.end) {
      ranges_.emplace(at, range->second);
      range->second.end = at;
    }
  }

  std::map<Offset, Range> ranges_;
};

}  // namespace stalloc::planner
