// Compaction: first fit once more, in order of the offsets of the best packing. Every block finds a place at or below
// its old one, so the height never grows; what it frees, the searches that follow can use.
#pragma once

#include <vector>

#include "planner/packing/evaluator.h"
#include "planner/packing/instance.h"
#include "planner/packing/stack_order.h"

namespace stalloc::planner {

// Lowest first, ties by start.
[[nodiscard]] StackOrder OrderByOffset(const Instance& instance, const std::vector<Offset>& offsets);

// Returns whether the height fell.
bool Compact(Evaluator& evaluator);

}  // namespace stalloc::planner
