// Where backward passes run parts of the forward pass again: the recomputation of activation checkpoints.
//
// Its requests are flagged (kAllocRecomputed) but for those in the forward functions of autograd functions, where
// autograd records nothing. Such a gap is recomputation, too, while most of what was recomputed before it stays alive:
// the backward pass of a layer frees what was recomputed for it. Traces of libraries that do not flag have none. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/analysis/lifetimes.h"

namespace stalloc::planner {

// From the first request of a recomputation to its last.
struct RecomputedRange {
  std::uint64_t first_event = 0;
  std::uint64_t last_event = 0;
};

// Ascending, apart from each other.
[[nodiscard]] std::vector<RecomputedRange> FindRecomputation(const DeviceTrace& device);

}  // namespace stalloc::planner
