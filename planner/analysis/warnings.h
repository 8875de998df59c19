// Which marks a trace lacks, and what that costs: one sentence each, for people. Warnings cost every run something;
// notes only some.
#pragma once

#include <string>
#include <vector>

#include "planner/analysis/segments.h"

namespace stalloc::planner {

struct MarkFindings {
  std::vector<std::string> warnings;
  std::vector<std::string> notes;
};

[[nodiscard]] MarkFindings MissingMarks(const MarkCensus& census);

}  // namespace stalloc::planner
