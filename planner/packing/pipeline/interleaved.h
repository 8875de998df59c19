// Interleaved: pipelines whose chunks are freed in another order than they came, packed at the load bound.
//
// Each peak needs the room that is left over next to what was freed just before. Where each round's room is to lie is
// planned for all rounds at once (room_trails.h), every pass is laid out to meet it (trail_layout.h), and what is left,
// temporaries above all, follows by size, first fit.
#pragma once

#include <cstdint>

#include "planner/packing/search/evaluator.h"

namespace stalloc::planner {

// Nothing where the instance is no interleaved pipeline.
void SearchInterleaved(Evaluator& evaluator, std::uint64_t seed);

}  // namespace stalloc::planner
