// Experiments as Markdown tables and as JSON. Ratios are held / peak live bytes of the run that is served.
#pragma once

#include <string>
#include <vector>

#include "bench/plan_quality/output.h"
#include "bench/replay/experiment.h"
#include "bench/replay/floors.h"

namespace stalloc::bench {

// A line for each.
[[nodiscard]] std::string ExperimentTable(const std::vector<Experiment>& experiments);
[[nodiscard]] std::string FloorTable(const std::vector<FloorResult>& floors);
// An object with the facts, "experiments" and "floors".
[[nodiscard]] std::string ResultsJson(const std::vector<Experiment>& experiments,
                                      const std::vector<FloorResult>& floors, const planner::RunFacts& facts);

}  // namespace stalloc::bench
