// Two independent checks of the idle rectangles of a plan: against the packing it was made from, in all rounds of the
// cycle, and against the traced run. Both O(n log n).
#pragma once

#include "absl/status/status.h"
#include "planner/analysis/lifetimes.h"
#include "planner/analysis/timeline.h"
#include "planner/packing/problem.h"
#include "proto/model/plan.h"

namespace stalloc::planner {

// InvalidArgument naming rectangle and bytes in use that meet in some round of the cycle; see packing/idle_check.h.
[[nodiscard]] absl::Status CheckIdleAgainstPacking(const Timeline& timeline, const Packing& packing,
                                                   const DevicePlan& plan);

// The same for what the traced run uses in the first round of the cycle's first script, with all that comes into it
// from the prologue. REQUIRES: CheckPlanShape passed; prologue and that script are what was traced.
[[nodiscard]] absl::Status CheckIdleAgainstTrace(const DeviceTrace& device, const DevicePlan& plan);

}  // namespace stalloc::planner
