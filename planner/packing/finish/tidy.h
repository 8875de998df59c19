// Tidy: the last step of packing. Keeps the height and chooses among packings of that height: the fewer hand-overs that
// need a wait the better, then the less scatter of the idle space. Candidates place a part of the blocks anew by first
// fit and keep the rest where it is; one that is better replaces the packing, and the next one starts from it:
//   * several streams: blocks of the minor ones go where their stream was last, or into a region of their stream at the
//     arena's top; then the loose blocks of all streams; then only those that still take part in a hand-over. Blocks
//     that other streams use, too, are a stream of their own here, so that nobody takes their bytes right after them;
//   * loose blocks, which are never alive near the peak: long-lived ones first, then in order of time.
#pragma once

#include <atomic>
#include <cstddef>

#include "planner/packing/finish/hand_overs.h"
#include "planner/packing/finish/scatter.h"
#include "planner/packing/problem/passes.h"
#include "planner/packing/problem/problem.h"
#include "planner/packing/problem/work.h"

namespace stalloc::planner {

// About half a second.
inline constexpr std::size_t kMostPlacements = 320'000;
inline constexpr Work kWorkOfPlacement = 1'500;

struct TidyOptions {
  const std::atomic<bool>* stop = nullptr;  // may be null
  PackingPasses passes = {};                // that are made use of
  CycleAxis cycle = {};                     // what repeats; empty: the whole axis, once
  // A packing of more than half as many blocks stays as it is.
  std::size_t placements = kMostPlacements;
};

struct Tidiness {
  std::size_t hand_overs = 0;
  Scatter scatter;

  // REQUIRES: both of packings of one problem and one height.
  [[nodiscard]] bool BetterThan(const Tidiness& other) const {
    if (hand_overs != other.hand_overs) return hand_overs < other.hand_overs;
    return scatter.longest > other.scatter.longest;
  }
};

// REQUIRES: a valid packing. Returns a valid one of the same height (and proved bound), never worse in tidiness.
// Thread-safe.
[[nodiscard]] Packing Tidy(const Problem& problem, Packing packing, const TidyOptions& options);

}  // namespace stalloc::planner
