// Predecessors: for each slot, the slots that last held any byte of it when it is used, in plan order.
//
// A sweep over all scripts in order, the cycle twice so that what its end leaves behind reaches its beginning. A map
// from address to last holder answers each use: O(uses x holders met), holders being few since ranges are overwritten
// whole.
#pragma once

#include "proto/model/plan.h"

namespace stalloc::planner {

// Fills Slot::predecessors (ascending, without the slot itself) of a plan with scripts and slots.
void FillPredecessors(DevicePlan* plan);

}  // namespace stalloc::planner
