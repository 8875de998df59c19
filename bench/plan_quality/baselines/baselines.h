// The allocators and planners that the portfolio is compared with: own implementations of published algorithms behind
// the Solver interface, one a file. Single-threaded.
//
// Unlike a solver of the portfolio, a baseline that is stopped before its first packing is complete returns one without
// offsets: it did not finish.
#pragma once

#include <memory>
#include <vector>

#include "planner/packing/search/solver.h"

namespace stalloc::planner {

[[nodiscard]] std::unique_ptr<Solver> MakeGreedyBySize();
[[nodiscard]] std::unique_ptr<Solver> MakeXlaSpatial();
[[nodiscard]] std::unique_ptr<Solver> MakeXlaTemporal();
[[nodiscard]] std::unique_ptr<Solver> MakeTfliteGreedy();
[[nodiscard]] std::unique_ptr<Solver> MakeUsmpHillClimb();
[[nodiscard]] std::unique_ptr<Solver> MakeOnlineFirstFit();
[[nodiscard]] std::unique_ptr<Solver> MakeOnlineBestFit();

// All of them, in the order of the table.
[[nodiscard]] std::vector<std::unique_ptr<Solver>> MakeBaselines();

}  // namespace stalloc::planner
