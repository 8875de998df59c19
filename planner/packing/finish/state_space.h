// Space for what comes late and stays for good (optimizer state), kept from the axis' beginning on: a run that has it
// from its beginning, as one that is resumed from a checkpoint does, then finds nobody in its places.
//
//   offset ^   before        after          the other blocks that end before the cycle (o, p) make way, those whose
//          |  ooo pppp     ooo              steady twins have places (p') for these; no block of the cycle moves
//          |     ssssss    ssssssss
//          |     . p'p'        pppp p'p'
//          +------------> tick
//
// Pure; thread-safe. Bytes.
#pragma once

#include <cstdint>
#include <span>

#include "planner/packing/problem/problem.h"

namespace stalloc::planner {

inline constexpr std::uint32_t kNoTwin = 0xffffffffu;

// Persistent blocks that live until `end` do so from the axis' beginning on, those that come first before the others,
// as far as no tick before them comes to a load above `height`. REQUIRES: the axis is [0, end). O(n log n + end).
void BeginStateEarly(Tick end, Bytes height, Problem* problem);

// Does that to `problem` and moves the blocks that end by `cycle.begin` out of the way. `twins`: by block, the block
// whose place it takes if it can; kNoTwin: none. Where first fit finds no place for one of them below the packing's
// height, nothing changes. REQUIRES: a valid packing. O(n log n).
void KeepStateSpace(const CycleAxis& cycle, std::span<const std::uint32_t> twins, Problem* problem, Packing* packing);

}  // namespace stalloc::planner
