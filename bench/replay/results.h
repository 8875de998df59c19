// Experiments as tables and as JSON. Ratios are held / peak live bytes of the run that is served.
#pragma once

#include <string>
#include <vector>

#include "bench/replay/experiment.h"
#include "bench/replay/floors.h"

namespace stalloc::bench {

// How the results were made. Holds nothing of the machine or its folders.
struct RunFacts {
  std::string date;  // YYYY-MM-DD
  std::string version;
  std::string compiler;
  std::string command_line;
};

// A line for each.
[[nodiscard]] std::string ExperimentTable(const std::vector<Experiment>& experiments, bool markdown);
[[nodiscard]] std::string FloorTable(const std::vector<FloorResult>& floors, bool markdown);
// An object with the facts, "experiments" and "floors".
[[nodiscard]] std::string ResultsJson(const std::vector<Experiment>& experiments,
                                      const std::vector<FloorResult>& floors, const RunFacts& facts);

}  // namespace stalloc::bench
