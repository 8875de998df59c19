// Ranking: which block comes first among those that could rest on the same offset.
//
// Keys are compared one after another, greater first. One of them may be multiplied by the greatest load that is still
// to be placed while the block lives; as that changes, a search ranks the blocks of a part anew when it falls off.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "planner/packing/problem/random.h"
#include "planner/packing/search/search_blocks.h"

namespace stalloc::planner {

using RankingKey = std::array<double, 3>;

struct Ranking {
  static constexpr std::size_t kNoLoad = 3;

  std::vector<RankingKey> keys;    // of an entry
  std::size_t load_key = kNoLoad;  // the key that is multiplied by the load
  // Of two blocks with the same lifetimes, one directly on the other, the larger must lie below. Proofs are shorter for
  // it; packings may be found later.
  bool orders_stacks = false;
  bool follows_load = true;  // ranks anew whatever falls off, by the load left to it
};

// What the rankings of an instance are made of. Immutable; thread-safe.
class Rankings {
 public:
  // The rankings of one round.
  static constexpr std::size_t kRound = 16;
  // So many of them deserve more time than the others: they solved nearly all public instances soonest.
  static constexpr std::size_t kLeading = 2;

  // REQUIRES: the blocks outlive this.
  explicit Rankings(const SearchBlocks& blocks);

  // REQUIRES: index < kRound. `plain`: the fixed ones as they are, else all but the leading ones are shaken.
  [[nodiscard]] Ranking Draw(std::size_t index, bool plain, Random& random) const;

 private:
  // The published ones and others.
  static constexpr std::size_t kFixed = 8;
  // Every key is multiplied by 1 to 1 + `shake` at random.
  [[nodiscard]] Ranking Fixed(std::size_t index, double shake, Random& random) const;
  // Length, size and load to powers of their own: between the extremes of the fixed rankings.
  [[nodiscard]] Ranking Mixed(double shake, Random& random) const;

  struct Measures {
    double ticks;      // length of its lifetimes
    double positions;  // the same, in positions
    double bytes;
  };

  const SearchBlocks& blocks_;
  std::vector<Measures> measures_;
};

}  // namespace stalloc::planner
