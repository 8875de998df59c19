// Who runs: the portfolio, its parts, and the baseline.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/packing/search/solver.h"

namespace stalloc::planner {

struct Contender {
  std::unique_ptr<Solver> solver;
  bool by_clock = false;  // the baseline, with a limit of its own; the planner's own solvers count their work
};

// By name; "all" is everyone, no name the portfolio, first fit by size and best fit. InvalidArgument names what there
// is.
[[nodiscard]] absl::StatusOr<std::vector<Contender>> MakeContenders(const std::vector<std::string>& names);

}  // namespace stalloc::planner
