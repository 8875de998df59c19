// Where a history's iterations begin, by the period with which its requests repeat: for runs that nothing marks. Pure.
//
// Sizes that come in a pattern which repeats are spaced evenly in the list of requests; each such spacing is a
// candidate, and the period is the one at which all of these sizes come again: at a micro-batch's spacing the
// optimizer's do not. Sizes that depend on data have no even spacing and take no part.
//
// What repeats and piles up is no iteration: the layers of a forward pass that keeps its activations repeat, too, and
// live bytes do not come back to where they were. Such a period is passed over.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "proto/model/units.h"

namespace stalloc::planner {

struct TracedRank;

// Repeats that were taken for no iterations, since live bytes do not come back to the same level.
struct Pile {
  std::uint64_t repeats = 0;
  std::uint64_t requests = 0;  // of each
  std::int64_t bytes = 0;      // by which live bytes grow in each; negative: shrink
};

struct PeriodCut {
  std::vector<std::size_t> begins;  // the requests that begin an iteration, ascending; empty if none was found
  std::optional<Pile> pile;         // where nothing was found: what repeats all the same
};

// `sizes`: of all requests; `live_before`: live bytes before each of them, and maybe those in the end. An iteration
// begins where least is live, which is after the optimizer. What comes before the first one is set-up (and warm-up,
// where it requests something else).
[[nodiscard]] PeriodCut FindPeriodCut(const std::vector<Bytes>& sizes, const std::vector<Bytes>& live_before);

// Requests an iteration, as far as sizes show; 0 if nothing repeats.
[[nodiscard]] std::size_t FindPeriod(const std::vector<Bytes>& sizes);

// Cuts a trace that has no iteration mark where the requests of its busiest device repeat; marks of other kinds stay
// where they are. Nothing is done where there is a mark, or no period.
void CutByPeriod(TracedRank* traced);

}  // namespace stalloc::planner
