// Lower bounds by relaxation, for instances that are too large to be searched whole.
//
// Whatever cannot fit for some of the blocks cannot fit for all. Around the highest loads, the heaviest blocks alive in
// a window of time are asked by the capacity search whether they fit below the bound. While the answer is no, the
// capacity is raised; what is then proved of them is proved of the instance. A block that is in conflict with all
// others of the window is not searched: the others can slide by its size, so it lies below them (where their
// alignments allow it). Stateless; thread-safe. Bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "planner/packing/problem/instance.h"
#include "planner/packing/search/search_state.h"

namespace stalloc::planner {

struct RelaxationWindow {
  std::size_t beginnings;  // in the window, about
  std::size_t blocks;      // that are searched, the heaviest: small ones hide what is wrong with the large ones
};

struct RelaxationLimits {
  std::size_t peaks = 3;  // of the load, each in a stretch of time of its own
  std::vector<RelaxationWindow> windows = {{40, 16}, {40, 60}, {120, 200}, {300, 300}};
  std::uint64_t nodes = 4000;  // of one search
};

// The height of an optimal packing is a multiple of this: in one that is pressed down, every offset is a sum of sizes,
// rounded up to alignments here and there. REQUIRES: blocks.
[[nodiscard]] Bytes HeightUnit(const Problem& problem);

// Raises the state's proved bound where it can. REQUIRES: the state is one of the
// instance.
void ProveByRelaxation(const Instance& instance, SearchState& state, const RelaxationLimits& limits = {});

}  // namespace stalloc::planner
