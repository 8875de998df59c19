// From a timeline to a packing: small blocks apart, state at the bottom, and whether turns pay.
#pragma once

#include <functional>
#include <string>

#include "planner/analysis/timeline.h"
#include "planner/packing/portfolio.h"
#include "planner/packing/search/solver.h"

namespace stalloc::planner {

// Bytes of the best packing so far, and what no packing can be below.
using PackingProgress = std::function<void(Bytes height, Bytes lower_bound)>;

struct PackingOptions {
  SolveOptions solve;  // work, lower_bound and on_progress are set for each problem
  Work work = kDefaultPackingWork;
  PackingProgress on_progress;  // may be empty
};

struct SolvedPacking {
  Packing packing;
  Bytes lower_bound = 0;  // the greatest that is known
  std::string solver;
  double seconds = 0;
  std::uint32_t turns = 1;  // as BuildTimeline takes it: the packing is of that timeline's blocks
  Work work = 0;            // of all that was tried
  Bytes one_place = 0;      // what one place for all turns takes: proved, or the height of the packing that was tried
};

// Builds the timeline with `turns` turns.
using TurnsBuilder = std::function<Timeline(std::uint32_t turns)>;

// `timeline` has no turns, and `build` requests at most `most_copies` of them. The lowest packing is taken, of equals
// the one of fewest turns. One place for all turns is searched first, and turns if that is more than a thousandth above
// the load; but where a block outlives its iteration and the load of what crosses proves that one place is too much,
// turns alone. What is tried last is left out where there is not work enough for a first packing of it. A fifth more
// than options.work at most, but for what one first packing needs.
[[nodiscard]] SolvedPacking SolveTimeline(const Timeline& timeline, std::uint32_t most_copies,
                                          const TurnsBuilder& build, const PackingOptions& options, Solver& solver);

}  // namespace stalloc::planner
