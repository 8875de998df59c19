// Everything that a report draws of one rank, as JSON on one line. Bytes are numbers of bytes, times nanoseconds since
// the trace's first event. Tables are columns of equal length, so that the text stays small; its size does not grow
// with the trace.
#pragma once

#include <string>

#include "planner/analysis/rank_report.h"
#include "planner/report/block_facts.h"
#include "proto/model/plan.h"

namespace stalloc::planner {

// {"rank": as RankJson, "classes": [...], "devices": [{"device", "roles", "layers", "phases", "timeline",
// "peak_timeline",
//  "held", "peak", "top_blocks", "layer_table", "alternatives", "scaling", "growth", "plan"}]}. `plan` may be null.
[[nodiscard]] std::string RunViewJson(const RankReport& report, const TracedRank& traced, const TraceClock& clock,
                                      const Plan* plan);

}  // namespace stalloc::planner
