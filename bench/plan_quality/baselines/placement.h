// What the offline baselines share: blocks are placed one after the other in a given order, each into one of the gaps
// that those before it left. The order and the choice of the gap make the algorithm.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <vector>

#include "bench/plan_quality/baselines/gap_index.h"
#include "planner/packing/problem/problem.h"
#include "planner/packing/search/solver.h"

namespace stalloc::planner {

enum class GapChoice {
  kLowest,        // first fit
  kSmallest,      // best fit; the open gap above everything only where no other is large enough
  kSmallestUnder  // as kSmallest, but the open gap counts as one that ends at the current height (XLA)
};

// Indices of the problem's blocks.
using BlockOrder = std::vector<std::size_t>;

// Indices in order of `before`, ties by index.
[[nodiscard]] BlockOrder SortedBlocks(const Problem& problem,
                                      const std::function<bool(const Block&, const Block&)>& before);

// Ticks from the first begin to the last end, a second lifetime included.
[[nodiscard]] Tick LifeSpan(const Block& block);

[[nodiscard]] bool IsStopped(const SolveOptions& options);

// None: the stop flag came first. `index` is cleared first, so that searches use its memory again.
[[nodiscard]] std::optional<Packing> PlaceInOrder(const Problem& problem, const BlockOrder& order, GapChoice choice,
                                                  const SolveOptions& options, GapIndex& index);

// The same as a solver's whole answer: reports its height; no offsets where it did not finish.
[[nodiscard]] Packing SolveInOrder(const Problem& problem, const BlockOrder& order, GapChoice choice,
                                   const SolveOptions& options);

}  // namespace stalloc::planner
