// Window repair: lowers a packing by repairing the peak piece by piece.
//
// A ceiling a little below the height is drawn; blocks that rise above it lose their places. Then, again and again, one
// of them is given room by taking out the blocks of a small window of time and addresses and placing them anew below
// the ceiling, the rest frozen: in some orders, and exactly where these have failed for long. A repair that leaves no
// more bytes without a place than before is kept: moves that gain nothing let the search wander. When all have a place
// the ceiling is lowered. What orders of all blocks cannot express, such as one layer arranged otherwise than its
// equals, is found here.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "planner/packing/evaluator.h"
#include "planner/packing/solver.h"

namespace stalloc::planner {

struct RepairLimits {
  std::uint32_t windows = 20000;  // for one ceiling
  std::uint32_t patience = 1000;  // in a row without fewer bytes that have no place
};

// Offsets below `ceiling` for all blocks, or none if the limits (or the budget of `state`) end the search first.
// Deterministic for a seed, whatever `threads`.
[[nodiscard]] std::optional<std::vector<Offset>> RepairBelow(const Instance& instance, SearchState& state,
                                                             std::vector<Offset> offsets, Bytes ceiling,
                                                             const RepairLimits& limits, std::uint64_t seed,
                                                             int threads);

// Lowers the best packing of the evaluator step by step, on the blocks that decide its height.
void SearchWindows(Evaluator& evaluator, const RepairLimits& limits, std::uint64_t seed);

[[nodiscard]] std::unique_ptr<Solver> MakeWindowRepair();

}  // namespace stalloc::planner
