// RangeMap<Value>: a value for each integer below a limit, kept in ranges that have the same one.
//
// A sorted vector: looked up by bisection, changed by moving what is after. Not thread-safe; takes heap memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <vector>

#include "allocator/base/range_set.h"

namespace stalloc {

template <typename Value>
class RangeMap {
 public:
  RangeMap(std::uint32_t limit, Value everywhere) : limit_(limit), ranges_{{0, everywhere}} {}

  void Assign(IndexRange range, Value value) {
    if (range.lo == range.hi) return;
    Split(range.hi);
    Split(range.lo);
    const auto first = From(range.lo);
    first->value = value;
    ranges_.erase(first + 1, From(range.hi));
  }

  // Calls visit(lo, hi), ascending, for each maximal range whose values are `least` or more.
  template <typename Visit>
  void ForEachFrom(Value least, Visit&& visit) const {
    for (std::size_t i = 0; i < ranges_.size();) {
      const std::uint32_t lo = ranges_[i].lo;
      if (ranges_[i++].value < least) continue;
      while (i < ranges_.size() && ranges_[i].value >= least) ++i;
      visit(lo, i < ranges_.size() ? ranges_[i].lo : limit_);
    }
  }

 private:
  struct Range {
    std::uint32_t lo;
    Value value;
  };
  typename std::vector<Range>::iterator From(std::uint32_t at) {
    return std::ranges::lower_bound(ranges_, at, {}, &Range::lo);
  }
  // A range begins there, if anything lies there.
  void Split(std::uint32_t at) {
    const auto range = From(at);
    if (at < limit_ && (range == ranges_.end() || range->lo > at)) ranges_.insert(range, {at, std::prev(range)->value});
  }

  std::uint32_t limit_;
  std::vector<Range> ranges_;  // ascending; they cover [0, limit)
};

}  // namespace stalloc
