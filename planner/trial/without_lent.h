// A plan for what graphs' pools do not serve. Pure.
#pragma once

#include "proto/model/plan.h"

namespace stalloc::planner {

// Without its lent entries: lives count the requests that are left. O(entries).
[[nodiscard]] DevicePlan WithoutLent(const DevicePlan& plan);

}  // namespace stalloc::planner
