// Which blocks decide the height: those that are alive near the peak, and not tiny. Pure.
#pragma once

#include <vector>

#include "planner/packing/problem/instance.h"

namespace stalloc::planner {

// Blocks that are alive at a load of at least `share` of the bound, ascending. A block that never is nearly always
// finds space below the height that the others need.
[[nodiscard]] std::vector<BlockIndex> BlocksNearPeak(const Instance& instance, double share);

// The load below which a block is too small to matter: the bound divided by 32768 (1 MiB of 32 GiB).
[[nodiscard]] Bytes LightBytes(const Instance& instance);

}  // namespace stalloc::planner
