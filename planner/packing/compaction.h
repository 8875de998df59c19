// Compaction: first fit once more, in order of the offsets of the best packing. Every block finds a place at or below
// its old one, so the height never grows; what it frees, the searches that follow can use.
#pragma once

#include "planner/packing/evaluator.h"

namespace stalloc::planner {

// Returns whether the height fell.
bool Compact(Evaluator& evaluator);

}  // namespace stalloc::planner
