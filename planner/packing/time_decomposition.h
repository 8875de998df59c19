// Time decomposition: where only few blocks live across a moment, what lies before and after it is packed apart.
//
//            cut             cut        blocks that cross a cut are placed first; the parts between two cuts then have
//   +---------|---------------|-----+   nothing to do with each other, so each gets the order that suits it, on threads
//   +--+ +--+ | +----+ +--+   |  +--+   of their own. All orders in a row are an order of everything: first fit gives
//     +----+  |    +----+ +-+ | +--+    a packing at least as valid as any other.
//
// Iterations of a training run are such parts: between them little but weights and optimizer state is alive.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "planner/packing/evaluator.h"
#include "planner/packing/solver.h"

namespace stalloc::planner {

// Positions before which to cut, ascending: there the bytes that cross exceed the least that cross anywhere by at most
// 1/64 of the load bound. At least `min_blocks` blocks begin in each part.
[[nodiscard]] std::vector<std::uint32_t> TimeCuts(const Instance& instance, std::size_t min_blocks);

// Offers one packing, put together from the parts' best orders; none where there are hardly any cuts.
void SearchParts(Evaluator& evaluator, const SolveOptions& options);

[[nodiscard]] std::unique_ptr<Solver> MakeTimeDecomposition();

}  // namespace stalloc::planner
