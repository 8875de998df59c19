// First fit in order of size, greatest first, ties by start of lifetime: with equal sizes this is interval colouring,
// which is optimal within the size. One pass.
#pragma once

#include <memory>
#include <vector>

#include "planner/packing/search/evaluator.h"
#include "planner/packing/search/solver.h"

namespace stalloc::planner {

[[nodiscard]] std::vector<BlockIndex> SizeOrder(const Instance& instance);

// Lowest first, ties by start: placed in this order, every block finds a place at or below its old one.
[[nodiscard]] StackOrder OrderByOffset(const Instance& instance, const std::vector<Offset>& offsets);

// The packing of SizeOrder, whatever the budget: the incumbent that every other search starts from.
void SolveBySize(Evaluator& evaluator);

[[nodiscard]] std::unique_ptr<Solver> MakeSizeFirstFit();

}  // namespace stalloc::planner
