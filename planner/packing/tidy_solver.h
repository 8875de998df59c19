// A solver that tidies what another one finds; see tidy.h. It has the other's name and height. A tenth of the
// work, and never more than tidying takes at most, is kept for it.
#pragma once

#include <memory>

#include "planner/packing/solver.h"

namespace stalloc::planner {

[[nodiscard]] std::unique_ptr<Solver> MakeTidySolver(std::unique_ptr<Solver> solver);

}  // namespace stalloc::planner
