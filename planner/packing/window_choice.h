// Which blocks to take out of a packing around one that has no place: those that lie, for their whole lives, in a
// random rectangle of time and addresses about a gap that is free while the block lives. Bytes.
#pragma once

#include <span>
#include <vector>

#include "planner/packing/instance.h"
#include "planner/packing/random.h"

namespace stalloc::planner {

// `homeless` first, then at most about 200 placed blocks, the nearest in time first. `by_offset` holds every placed
// block once, lowest first. O(blocks).
[[nodiscard]] std::vector<BlockIndex> ChooseWindow(const Instance& instance, std::span<const Offset> offsets,
                                                   std::span<const BlockIndex> by_offset, BlockIndex homeless,
                                                   Bytes ceiling, Random& random);

}  // namespace stalloc::planner
