// What the online baselines share: requests and frees are served in order of time, with no knowledge of what comes, and
// what is freed is joined with its free neighbours at once. This is an ideal expandable segment: one range, no
// granularity, no streams, no cache. A block with two lifetimes keeps its place between them, since it may not move.
#pragma once

#include <optional>

#include "absl/container/btree_map.h"
#include "planner/packing/problem/problem.h"
#include "planner/packing/search/solver.h"

namespace stalloc::planner {

// Free ranges below the height, begin -> end, none adjacent to another. The room above the height is taken only where
// none of them is large enough.
using FreeRanges = absl::btree_map<Offset, Offset>;

// The range to take, or ranges.end(): none is large enough.
using RangeChoice = FreeRanges::const_iterator (*)(const FreeRanges& ranges, const Block& block);

// No offsets: the stop flag came first.
[[nodiscard]] Packing SolveOnline(const Problem& problem, RangeChoice choose, const SolveOptions& options);

// Whether the block, aligned, fits into [begin, end).
[[nodiscard]] inline bool FitsInto(const Block& block, Offset begin, Offset end) {
  return RoundUp(begin, block.alignment) + block.bytes <= end;
}

}  // namespace stalloc::planner
