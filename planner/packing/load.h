// The load: the sum of sizes alive at a tick.
#pragma once

#include <vector>

#include "planner/packing/problem.h"

namespace stalloc::planner {

// At each tick of [0, end), bytes. O(blocks + end).
[[nodiscard]] std::vector<Bytes> LoadByTick(const Problem& problem, Tick end);

}  // namespace stalloc::planner
