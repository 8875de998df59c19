// The report of one rank as JSON. Keys are stable; bytes are numbers of bytes, shares are in [0, 1], times in seconds.
#pragma once

#include <string>

#include "planner/analysis/rank_report.h"
#include "planner/report/json_writer.h"

namespace stalloc::planner {

// Writes the fields of one object.
void WriteRankJson(const RankReport& report, JsonWriter* json);

[[nodiscard]] std::string RankJson(const RankReport& report);

}  // namespace stalloc::planner
