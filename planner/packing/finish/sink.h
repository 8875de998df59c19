// Moves what is alive all the time to the bottom of a packing, in the order it has. Every other block is wholly above
// or below such a one, so that whatever lies below moves up by its size: the packing holds as before, no block is
// higher than the height, and what is idle at a tick is no longer cut up by blocks that never go. O(n log n).
#pragma once

#include "planner/packing/problem/problem.h"

namespace stalloc::planner {

// Nothing changes where the sizes of these blocks would break another block's alignment. REQUIRES: a valid packing.
void SinkResidents(const Problem& problem, Packing* packing);

}  // namespace stalloc::planner
