// A key of packing problems: equal problems have equal keys (ContentHash). The caller still checks the packing all the
// same.
#pragma once

#include "planner/analysis/content_hash.h"
#include "planner/packing/problem/problem.h"

namespace stalloc::planner {

using ProblemKey = ContentHash::Value;

// Extends `seed`, so that several problems have one key.
[[nodiscard]] ProblemKey KeyOfProblem(const Problem& problem, ProblemKey seed = {});

}  // namespace stalloc::planner
