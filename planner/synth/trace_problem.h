// A trace's allocations as a packing problem, all of them, as they were: no classes, no cycle. Pure function.
#pragma once

#include "planner/packing/problem/problem.h"
#include "proto/model/trace.h"

namespace stalloc::planner {

// Ticks count allocations and frees; what is never freed lives to the end; ids are allocation indices.
[[nodiscard]] Problem ProblemOfTrace(const Trace& trace);

}  // namespace stalloc::planner
