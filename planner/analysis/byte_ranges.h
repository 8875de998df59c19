// Sets of bytes as half-open ranges. Pure.
#pragma once

#include <algorithm>
#include <vector>

#include "proto/model/units.h"

namespace stalloc::planner {

struct ByteRange {
  Offset begin = 0;
  Offset end = 0;

  [[nodiscard]] bool Overlaps(const ByteRange& other) const { return begin < other.end && other.begin < end; }
  bool operator==(const ByteRange&) const = default;
};

// Ascending, disjoint, none empty, and none begins where another ends.
using ByteRanges = std::vector<ByteRange>;

// The bytes of any ranges, in any order. O(n log n).
[[nodiscard]] inline ByteRanges Merged(std::vector<ByteRange> ranges) {
  std::ranges::sort(ranges, {}, &ByteRange::begin);
  ByteRanges merged;
  for (const ByteRange& range : ranges) {
    if (range.begin >= range.end) continue;
    if (merged.empty() || merged.back().end < range.begin) {
      merged.push_back(range);
    } else {
      merged.back().end = std::max(merged.back().end, range.end);
    }
  }
  return merged;
}

// The bytes of `from` that are not in `without`. O(n).
[[nodiscard]] inline ByteRanges Without(const ByteRanges& from, const ByteRanges& without) {
  ByteRanges left;
  auto next = without.begin();
  for (ByteRange range : from) {
    while (next != without.end() && next->end <= range.begin) ++next;
    for (auto hole = next; hole != without.end() && hole->begin < range.end; ++hole) {
      if (range.begin < hole->begin) left.push_back({range.begin, hole->begin});
      range.begin = std::max(range.begin, hole->end);
    }
    if (range.begin < range.end) left.push_back(range);
  }
  return left;
}

}  // namespace stalloc::planner
