// Obstacles: addresses that are taken for good, and the room between them.
//
// Immutable once built; thread-safe then. Bytes.
#pragma once

#include <algorithm>
#include <vector>

#include "planner/packing/interval_list.h"
#include "proto/model/units.h"

namespace stalloc::planner {

class Obstacles {
 public:
  void Insert(Offset begin, Offset end) { taken_.Insert(begin, end); }
  [[nodiscard]] bool empty() const { return taken_.empty(); }

  // The lowest multiple of `alignment`, at or above `from`, with `bytes` free above it.
  [[nodiscard]] Offset LowestFit(Offset from, Bytes bytes, Bytes alignment) const {
    Offset offset = RoundUp(from, alignment);
    for (auto at = FirstEndingAbove(offset); at != taken_.intervals().end() && at->begin < offset + bytes; ++at) {
      if (at->end > offset) offset = RoundUp(at->end, alignment);
    }
    return offset;
  }

  // How much of [from, to) is free.
  [[nodiscard]] Bytes FreeBetween(Offset from, Offset to) const {
    if (from >= to) return 0;
    Bytes free = to - from;
    for (auto at = FirstEndingAbove(from); at != taken_.intervals().end() && at->begin < to; ++at) {
      free -= std::min(at->end, to) - std::max(at->begin, from);
    }
    return free;
  }

 private:
  [[nodiscard]] std::vector<IntervalList::Interval>::const_iterator FirstEndingAbove(Offset offset) const {
    return std::upper_bound(taken_.intervals().begin(), taken_.intervals().end(), offset,
                            [](Offset value, const IntervalList::Interval& interval) { return value < interval.end; });
  }

  IntervalList taken_;
};

}  // namespace stalloc::planner
