// A solver that tidies what another one finds; see tidy.h. It has the other's name and height. Of the time until the
// deadline a tenth, and never more than half a second, is kept for tidying.
#pragma once

#include <memory>

#include "planner/packing/solver.h"

namespace stalloc::planner {

[[nodiscard]] std::unique_ptr<Solver> MakeTidySolver(std::unique_ptr<Solver> solver);

}  // namespace stalloc::planner
