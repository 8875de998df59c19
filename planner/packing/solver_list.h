// All solvers, for benchmarks and for tests that must hold for each of them.
#pragma once

#include <memory>
#include <vector>

#include "planner/packing/solver.h"

namespace stalloc::planner {

[[nodiscard]] std::vector<std::unique_ptr<Solver>> MakeAllSolvers();

}  // namespace stalloc::planner
