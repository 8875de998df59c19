// Measurements as a table and as JSON. The table has a row for each instance and a column for each solver; a cell is
// the ratio to the load bound and the seconds of solving, "=" marks a packing that is known to be optimal.
#pragma once

#include <string>
#include <vector>

#include "bench/plan_quality/measurement.h"
#include "bench/plan_quality/output.h"

namespace stalloc::planner {

// What the measurements were made with.
struct Limits {
  int threads = 1;
  double time_limit_s = 0;
  double baseline_limit_s = 0;
};

[[nodiscard]] std::string ResultsMarkdown(const std::vector<Measurement>& measurements);
// An object with the facts and an array "results", one object for each measurement.
[[nodiscard]] std::string ResultsJson(const std::vector<Measurement>& measurements, const RunFacts& facts,
                                      const Limits& limits);

}  // namespace stalloc::planner
