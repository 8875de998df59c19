// Which marks a trace lacks, and what that costs: one sentence each, for people.
#pragma once

#include <string>
#include <vector>

#include "planner/analysis/segments.h"

namespace stalloc::planner {

[[nodiscard]] std::vector<std::string> MissingMarks(const MarkCensus& census);

}  // namespace stalloc::planner
