// Makes a Solver of a search: prepares the instance, runs the search, returns the best packing it offered.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "planner/packing/evaluator.h"
#include "planner/packing/solver.h"

namespace stalloc::planner {

// REQUIRES of a search: it offers at least one packing, whatever the budget.
using Search = std::function<void(Evaluator& evaluator, const SolveOptions& options)>;

[[nodiscard]] std::unique_ptr<Solver> MakeSearchSolver(std::string name, Search search);

}  // namespace stalloc::planner
