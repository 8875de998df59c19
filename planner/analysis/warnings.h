// Which marks a trace lacks, and what that costs: one sentence each, for people. Warnings say why there is no good
// plan; notes, which only reports have, are true of most scripts and cost some runs something.
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

// For a run whose requests vary from iteration to iteration and whose passes nothing marks.
inline constexpr const char* kVariesWithoutPasses =
    "requests vary between iterations and no micro-batch marks distinguish passes: with stalloc.microbatch() around "
    "each "
    "forward and backward pass more of them are served from their slots";

}  // namespace stalloc::planner
