// What the report says about the room that a plan leaves, and about hand-overs between its streams.
#pragma once

#include "planner/analysis/rank_report.h"
#include "planner/analysis/timeline.h"
#include "planner/packing/problem.h"
#include "proto/model/plan.h"

namespace stalloc::planner {

// Fills hand_overs, scatter and the idle_ fields. O(n log n). REQUIRES: the plan was built from timeline and packing.
void ReportSpace(const Timeline& timeline, const Packing& packing, const DevicePlan& plan, PackingReport* report);

}  // namespace stalloc::planner
