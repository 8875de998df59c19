// Squeaky wheel: what ends above the load bound is placed earlier in the next round (Joslin & Clements 1999). Works on
// the order that gave the best packing, stacks included; it pays from a good order only, so run it after the searches
// that find one.
#pragma once

#include <cstdint>
#include <memory>

#include "planner/packing/evaluator.h"
#include "planner/packing/solver.h"

namespace stalloc::planner {

// Stops after `patience` batches in a row that lowered nothing, or when the state is done.
void SearchSqueakyWheel(Evaluator& evaluator, std::uint64_t seed, int patience);

[[nodiscard]] std::unique_ptr<Solver> MakeSqueakyWheel();

}  // namespace stalloc::planner
