// Exact search for small instances: the least height, proved, where time allows it.
//
// The capacity search is run for heights between what is proved impossible and the best found, the load bound first.
// Its running time varies by orders of magnitude with the ranking, so many rankings take turns under a node limit that
// grows from round to round: by lifetime, area, load and size, plain, shaken a little, and mixed at random.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "planner/packing/search/evaluator.h"
#include "planner/packing/search/solver.h"

namespace stalloc::planner {

// Beyond this the memory (blocks squared) and the hope are not worth it.
inline constexpr std::size_t kMaxExactBlocks = 2000;

// What is not decided by then (the last rounds have millions of nodes a ranking) will hardly ever be.
inline constexpr int kMaxExactRounds = 12;

// A search that may be continued round by round. REQUIRES: at most kMaxExactBlocks blocks; the evaluator outlives it.
class ExactSearch {
 public:
  ExactSearch(Evaluator& evaluator, std::uint64_t seed);
  ~ExactSearch();

  // One round under the next node limit. Returns whether all is decided: the best packing is optimal.
  bool Round();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

[[nodiscard]] std::unique_ptr<Solver> MakeExactSearch();

}  // namespace stalloc::planner
