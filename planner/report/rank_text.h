// The report of one rank for people.
#pragma once

#include <string>

#include "planner/analysis/rank_report.h"

namespace stalloc::planner {

[[nodiscard]] std::string RankText(const RankReport& report);

}  // namespace stalloc::planner
