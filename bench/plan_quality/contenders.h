// Who runs: the portfolio, its parts, and the baselines.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/packing/search/solver.h"

namespace stalloc::planner {

struct Contender {
  std::unique_ptr<Solver> solver;
  bool one_pass = false;  // ends by itself: gets the limit of baselines, not that of searches
  bool by_clock = true;   // a baseline; what is the planner's own counts its work
};

// By name; "all" is everyone, no name the portfolio and the baselines. InvalidArgument names what there is.
[[nodiscard]] absl::StatusOr<std::vector<Contender>> MakeContenders(const std::vector<std::string>& names);

}  // namespace stalloc::planner
