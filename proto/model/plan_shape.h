// Structural check of a plan: what must hold for the engine to load it without looking twice.
//
// Offsets and capacities aligned and inside the arena, slot indices valid, phases ascending, columns consistent, at
// least one cycle script, lent slots inside the lent pools. Says nothing about lifetimes: those are for the
// planner to check (planner/packing/problem/plan_check.h, planner/analysis/replay.h).
#pragma once

#include "proto/model/plan.h"
#include "proto/model/result.h"

namespace stalloc {

// O(size of the plan). The error names the first violated rule with its index and values.
[[nodiscard]] Status CheckPlanShape(const Plan& plan);

}  // namespace stalloc
