// Room for latecomers: blocks that stay like earlier ones of their size, but come after some that go at once.
//
//   micro-batch 0        micro-batch 1        micro-batch 2        optimizer
//   [===================================================================]  gradients of experts: the first one stays,
//   [===================================================================]  later ones are added to it and go
//                            [=] [=]              [=]
//                                 [=====================================]  a latecomer: this expert had no tokens in
//   .. its place from here on ..                                           micro-batch 0
//
// In another iteration other experts come late, and as many stay in the end. A place that is kept from the first of its
// kind on serves whichever of them it is (allocator/engine/passed_places.h); one that others use before the latecomer's
// own time does not.
//
// Pure; thread-safe. Bytes.
#pragma once

#include "planner/packing/problem.h"

namespace stalloc::planner {

// Latecomers of at least `least` bytes live from the first of their kind on, those that come first before the others,
// as far as no tick comes to a load above `height`. Only sizes have any of which some block was seen to do both, stay
// and go (Block::may_go). REQUIRES: the axis is [0, cycle.end). O(n log n), the blocks of its size for each block of
// those sizes that stays, and the axis' length for each latecomer.
void BeginLatecomersEarly(const CycleAxis& cycle, Bytes least, Bytes height, Problem* problem);

}  // namespace stalloc::planner
