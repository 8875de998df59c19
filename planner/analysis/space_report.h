// What the report says about the room that a plan leaves, and about hand-overs between its streams.
#pragma once

#include "planner/analysis/rank_report.h"
#include "planner/analysis/timeline.h"
#include "planner/packing/problem.h"

namespace stalloc::planner {

// Fills hand_overs and scatter. O(n log n). REQUIRES: the packing is the timeline's.
void ReportSpace(const Timeline& timeline, const Packing& packing, PackingReport* report);

}  // namespace stalloc::planner
