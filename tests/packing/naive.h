// Naive models that the packing library is held against: quadratic, obvious, sharing no code with it.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "planner/packing/problem/problem.h"

namespace stalloc::planner {

struct RandomProblemShape {
  int blocks = 6;
  int ticks = 12;
  Bytes max_bytes = 20;
  bool second_lives = false;
  Bytes max_alignment = 1;  // powers of two up to this
};

[[nodiscard]] Problem RandomProblem(const RandomProblemShape& shape, std::mt19937_64& random);

// Whether two blocks are alive at one tick, tick by tick of their lifetimes.
[[nodiscard]] bool NaiveConflict(const Block& a, const Block& b);

// Greatest load over every tick at which anything begins.
[[nodiscard]] Bytes NaiveLoadBound(const Problem& problem);

// All pairs.
[[nodiscard]] bool NaiveIsValid(const Problem& problem, const Packing& packing);

// The lowest multiple of the block's alignment, at or above base, that misses all `placed` blocks in conflict with it.
[[nodiscard]] Offset NaiveLowestFit(const Problem& problem, const std::vector<Offset>& offsets,
                                    std::span<const std::size_t> placed, std::size_t block, Offset base);

// The least height of all packings: first fit over every permutation, for an optimal packing read from the bottom up is
// one. REQUIRES: at most 8 blocks.
[[nodiscard]] Bytes BruteForceOptimum(const Problem& problem);

}  // namespace stalloc::planner
