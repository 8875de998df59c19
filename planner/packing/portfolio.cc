#include "planner/packing/portfolio.h"

#include "planner/packing/search_solver.h"
#include "planner/packing/size_first_fit.h"

namespace stalloc::planner {

std::unique_ptr<Solver> MakePortfolio() {
  return MakeSearchSolver("portfolio", [](Evaluator& evaluator, const SolveOptions&) { SolveBySize(evaluator); });
}

}  // namespace stalloc::planner
