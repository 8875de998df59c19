// The portfolio: what the planner and the command line call. Cheap greedy first, then searches until the load bound,
// the end of the work or the stop flag.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "planner/packing/search/solver.h"

namespace stalloc::planner {

// Enough for every recorded run in bench/corpus; the solver returns sooner where the load bound is reached.
inline constexpr double kDefaultPackingSeconds = 5;
inline constexpr Work kDefaultPackingWork = WorkOfSeconds(kDefaultPackingSeconds);

// What a first packing takes, roughly: the least that makes sense to give for a problem of so many blocks.
[[nodiscard]] constexpr Work WorkOfFirstPacking(std::size_t blocks) { return 5'000 * Work{blocks}; }

[[nodiscard]] std::unique_ptr<Solver> MakePortfolio();

// And each of its searches alone, begun with first fit by size: for benchmarks, and for tests that must hold for all.
[[nodiscard]] std::vector<std::unique_ptr<Solver>> MakeAllSolvers();

}  // namespace stalloc::planner
