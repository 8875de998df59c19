// From a timeline to a packing: small blocks apart, state at the bottom, and whether turns pay.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "planner/analysis/timeline.h"
#include "planner/packing/portfolio.h"
#include "planner/packing/solver.h"

namespace stalloc::planner {

// Bytes of the best packing so far, and what no packing can be below.
using PackingProgress = std::function<void(Bytes height, Bytes lower_bound)>;

struct PackingOptions {
  SolveOptions solve;  // deadline, lower_bound and on_progress are set for each problem
  std::chrono::steady_clock::duration time = kDefaultPackingTime;
  PackingProgress on_progress;  // may be empty
};

struct SolvedPacking {
  Packing packing;
  Bytes lower_bound = 0;  // the greatest that is known
  std::string solver;
  double seconds = 0;
  std::uint32_t turns = 1;     // as BuildTimeline takes it: the packing is of that timeline's blocks
  Bytes one_place_height = 0;  // of the packing without turns, where both were tried; else 0
};

// `timeline` has no turns. Where a block outlives an iteration, or nothing varies and something crosses iterations and
// one place in all of them costs more than a thousandth of the bound, `build(turns)` is asked for the timeline in
// turns, and the lower packing is taken. Takes a fifth more than options.time at most, but for what a first packing
// needs.
[[nodiscard]] SolvedPacking SolveTimeline(const Timeline& timeline, std::uint32_t most_copies,
                                          const std::function<Timeline(std::uint32_t turns)>& build,
                                          const PackingOptions& options, Solver& solver);

}  // namespace stalloc::planner
