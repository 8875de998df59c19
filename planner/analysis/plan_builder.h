// From a packed timeline to the plan of one device: scripts with their phases, slots, what each slot inherits its
// bytes from, hand-overs between streams, and what stays idle. One slot per packed block; its capacity is the block's
// size, which for a request of varying size is what the choice of slots says. Pure.
#pragma once

#include "planner/analysis/lifetimes.h"
#include "planner/analysis/timeline.h"
#include "planner/packing/problem/problem.h"
#include "proto/model/plan.h"

namespace stalloc::planner {

// Leaves `predicted` empty: see replay.h. REQUIRES: packing is a valid packing of timeline.problem.
[[nodiscard]] DevicePlan BuildDevicePlan(const DeviceTrace& device, const Timeline& timeline, const Packing& packing);

}  // namespace stalloc::planner
