// IntervalList: a set of addresses as sorted, disjoint, coalesced half-open intervals. Not thread-safe. Bytes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "proto/model/units.h"

namespace stalloc::planner {

class IntervalList {
 public:
  struct Interval {
    Offset begin;
    Offset end;
    bool operator==(const Interval&) const = default;
  };

  [[nodiscard]] bool empty() const { return intervals_.empty(); }
  [[nodiscard]] const std::vector<Interval>& intervals() const { return intervals_; }
  // Forgets the intervals and keeps the memory, for the next evaluation needs as much.
  void Clear() { intervals_.clear(); }

  // Unites the set with [begin, end). Parts may be in it already; false if all of it was.
  bool Insert(Offset begin, Offset end) {
    // What ends at `begin` or starts at `end` is joined too, so that lists stay short.
    const auto first = std::lower_bound(intervals_.begin(), intervals_.end(), begin,
                                        [](const Interval& interval, Offset value) { return interval.end < value; });
    if (first != intervals_.end() && first->begin <= begin && end <= first->end) return false;
    auto last = first;
    while (last != intervals_.end() && last->begin <= end) ++last;
    if (first == last) {
      intervals_.insert(first, {begin, end});
      return true;
    }
    first->begin = std::min(first->begin, begin);
    first->end = std::max(std::prev(last)->end, end);
    intervals_.erase(std::next(first), last);
    return true;
  }

 private:
  std::vector<Interval> intervals_;
};

}  // namespace stalloc::planner
