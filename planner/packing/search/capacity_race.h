// CapacityRace: capacity searches under many rankings alternate, on all threads.
//
// The running time of a capacity search varies by orders of magnitude with the ranking, so many are tried under a node
// limit that the caller raises: by lifetime, area, load and size, plain, shaken a little, and mixed at random. Of those
// that decide, the first in order is taken: the outcome depends on the seed, not on the number of threads or their
// speed. Not thread-safe. Bytes.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "planner/packing/problem/random.h"
#include "planner/packing/search/capacity_search.h"
#include "planner/packing/search/ranking.h"
#include "planner/packing/search/search_blocks.h"
#include "planner/packing/search/search_state.h"

namespace stalloc::planner {

class CapacityRace {
 public:
  using Outcome = CapacitySearch::Outcome;

  // REQUIRES: the blocks outlive the race; threads > 0.
  CapacityRace(const SearchBlocks& blocks, std::uint64_t seed, int threads);

  // One search under each ranking, at most `node_limit` nodes each. `plain`: the fixed rankings as they are, else
  // shaken. Spends what is left of the state's budget at most, shared out beforehand.
  Outcome Run(Bytes capacity, std::uint64_t node_limit, bool plain, SearchState& state);
  // For all blocks of the instance. Valid after kFound.
  [[nodiscard]] const std::vector<Offset>& offsets() const { return offsets_; }

 private:
  CapacitySearch& SearchOf(std::size_t index);

  const SearchBlocks& blocks_;
  const Rankings rankings_;
  Random random_;
  const int threads_;
  // One a ranking: what it remembers is its own, so that it does not matter which thread runs it. Made when first
  // needed.
  std::array<std::unique_ptr<CapacitySearch>, Rankings::kRound> searches_;
  std::vector<Offset> offsets_;
};

}  // namespace stalloc::planner
