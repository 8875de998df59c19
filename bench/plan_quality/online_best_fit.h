// What no plan can beat without lifetimes: requests and frees are served in order of time, each request takes the
// smallest free range that is large enough, and what is freed is joined with its free neighbours at once. This is an
// ideal expandable segment: one range, no granularity, no streams, no cache. A block with two lifetimes keeps its place
// between them, since it may not move. One thread.
//
// Unlike a solver of the portfolio, it returns a packing without offsets where it is stopped: it did not finish.
#pragma once

#include <memory>

#include "planner/packing/search/solver.h"

namespace stalloc::planner {

[[nodiscard]] std::unique_ptr<Solver> MakeOnlineBestFit();

}  // namespace stalloc::planner
