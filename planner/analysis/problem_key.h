// A key of packing problems: equal problems have equal keys. Different ones share a key with a chance of 2^-128 or so
// (not against an adversary); whoever trusts it checks the packing all the same.
#pragma once

#include <array>
#include <cstdint>

#include "planner/packing/problem/problem.h"

namespace stalloc::planner {

using ProblemKey = std::array<std::uint64_t, 2>;

// Deterministic across runs and machines. Extends `seed`, so that several problems have one key.
[[nodiscard]] ProblemKey KeyOfProblem(const Problem& problem, ProblemKey seed = {});

}  // namespace stalloc::planner
