// The portfolio: what the planner and the command line call. Cheap greedy first, then searches until the load bound,
// the deadline or the stop flag.
#pragma once

#include <chrono>
#include <memory>

#include "planner/packing/solver.h"

namespace stalloc::planner {

// Enough for every recorded run in bench/corpus; the solver returns sooner where the load bound is reached.
inline constexpr std::chrono::seconds kDefaultPackingTime{5};

[[nodiscard]] std::unique_ptr<Solver> MakePortfolio();

}  // namespace stalloc::planner
