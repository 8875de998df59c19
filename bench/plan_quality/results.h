// Measurements as tables and as JSON. Tables have a row for each instance and a column for each solver; a cell is the
// ratio to the load bound and the seconds of solving, "=" marks a packing that is known to be optimal.
#pragma once

#include <string>
#include <vector>

#include "bench/plan_quality/measurement.h"

namespace stalloc::planner {

// How the measurements were made. Holds nothing of the machine or its folders.
struct RunFacts {
  std::string date;  // YYYY-MM-DD
  std::string version;
  std::string compiler;
  std::string command_line;
  int threads = 1;
  double time_limit_s = 0;
  double baseline_limit_s = 0;
};

[[nodiscard]] std::string ResultsText(const std::vector<Measurement>& measurements);
[[nodiscard]] std::string ResultsMarkdown(const std::vector<Measurement>& measurements);
// An object with the facts and an array "results", one object for each measurement.
[[nodiscard]] std::string ResultsJson(const std::vector<Measurement>& measurements, const RunFacts& facts);

// Arguments joined by blanks, with the folders cut from those that are paths.
[[nodiscard]] std::string CommandLineWithoutFolders(const std::vector<std::string>& arguments);

}  // namespace stalloc::planner
