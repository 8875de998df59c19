// Experiments as text, as a Markdown table and as JSON. Ratios are held / peak live bytes of the run that is served.
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

// Everything about one.
[[nodiscard]] std::string ExperimentText(const Experiment& experiment);
// Each served iteration beside expandable_segments.
[[nodiscard]] std::string IterationText(const Experiment& experiment);
// The last `most` growths of the arena: those that decide what is held in the end.
[[nodiscard]] std::string GrowthText(const Experiment& experiment, std::size_t most);
// A line for each.
[[nodiscard]] std::string ExperimentTable(const std::vector<Experiment>& experiments, bool markdown);
[[nodiscard]] std::string FloorTable(const std::vector<FloorResult>& floors, bool markdown);
// An object with the facts, "experiments" and "floors".
[[nodiscard]] std::string ResultsJson(const std::vector<Experiment>& experiments,
                                      const std::vector<FloorResult>& floors, const RunFacts& facts);

}  // namespace stalloc::bench
