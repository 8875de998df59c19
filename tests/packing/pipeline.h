// A pipeline in small: what rings are made for.
#pragma once

#include "planner/packing/problem/problem.h"

namespace stalloc::planner {

// Micro-batches in flight as in a pipeline: each allocates twelve blocks of 2, 1, 2, 1... units, which are freed in
// reverse three rounds later. At the peak of a round, a block of 2 needs the unit that is free all the time together
// with the one that has just been freed.
[[nodiscard]] Problem SmallPipeline(Tick rounds);

// The load bound of SmallPipeline: four micro-batches of 18, and one unit more.
inline constexpr Bytes kSmallPipelineBound = 73;

}  // namespace stalloc::planner
