// Exact search for small instances: the least height, proved, where time allows it.
//
// Capacity races (capacity_race.h) are run for heights between what is proved impossible and the best found, the load
// bound first, under a node limit that grows from round to round.
#pragma once

#include <cstddef>
#include <cstdint>

#include "planner/packing/search/capacity_race.h"
#include "planner/packing/search/evaluator.h"

namespace stalloc::planner {

// Beyond this the memory (blocks squared) and the hope are not worth it.
inline constexpr std::size_t kMaxExactBlocks = 2000;

// What is not decided by then (the last rounds have millions of nodes a ranking) will hardly ever be.
inline constexpr int kMaxExactRounds = 12;

// A search that may be continued round by round. REQUIRES: at most kMaxExactBlocks blocks; the evaluator outlives it.
class ExactSearch {
 public:
  ExactSearch(Evaluator& evaluator, std::uint64_t seed)
      : evaluator_(evaluator),
        blocks_(evaluator.instance()),
        race_(blocks_, seed, evaluator.threads()),
        possible_(evaluator.state().proved_bound()) {}

  // One round under the next node limit. Returns whether all is decided: the best packing is optimal.
  bool Round();

 private:
  static constexpr std::uint64_t kFirstNodeLimit = 2048;
  static constexpr std::uint64_t kLastNodeLimit = std::uint64_t{1} << 23;

  using Outcome = CapacityRace::Outcome;

  Outcome Try(Bytes capacity);

  Evaluator& evaluator_;
  const SearchBlocks blocks_;
  CapacityRace race_;
  Bytes possible_;  // every height below it is proved impossible
  std::uint64_t node_limit_ = kFirstNodeLimit;
  int rounds_ = 0;
};

}  // namespace stalloc::planner
