// The independent check of a packing: shares no code with any solver. Runs on every plan before it is written.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "planner/packing/problem/problem.h"

namespace stalloc::planner {

// OK, or InvalidArgument naming the first two blocks that overlap (ids, offsets, sizes, lifetimes), a misaligned
// offset, or a height that is too small. A sweep over time with an ordered set of live ranges: O(n log n).
[[nodiscard]] absl::Status CheckPacking(const Problem& problem, const Packing& packing);

}  // namespace stalloc::planner
