#include "planner/packing/search/ranking.h"

#include <algorithm>
#include <cmath>

namespace stalloc::planner {
namespace {

double Ticks(const Block& block) {
  double ticks = static_cast<double>(block.life.end - block.life.begin);
  if (block.second_life) ticks += static_cast<double>(block.second_life->end - block.second_life->begin);
  return ticks;
}

void Shake(RankingKey& key, double shake, Random& random) {
  for (double& part : key) part *= 1.0 + shake * random.Unit();
}

// Interchangeable blocks share the best of their keys, for the search takes them in their own order.
void UniteTwins(const SearchBlocks& blocks, std::vector<RankingKey>& keys) {
  std::vector<std::uint32_t> first(blocks.size());
  for (std::uint32_t i = 0; i < blocks.size(); ++i) {
    const std::uint32_t twin = blocks[i].twin;  // before i
    first[i] = twin == SearchBlocks::kNone ? i : first[twin];
    keys[first[i]] = std::max(keys[first[i]], keys[i]);
  }
  for (std::uint32_t i = 0; i < blocks.size(); ++i) keys[i] = keys[first[i]];
}

}  // namespace

Rankings::Rankings(const SearchBlocks& blocks) : blocks_(blocks) {
  measures_.reserve(blocks.size());
  for (std::uint32_t i = 0; i < blocks.size(); ++i) {
    const SearchBlocks::Entry& entry = blocks[i];
    measures_.push_back({Ticks(blocks.instance().problem().blocks[i]),
                         static_cast<double>(entry.span.length() + entry.second.length()),
                         static_cast<double>(entry.bytes)});
  }
}

Ranking Rankings::Draw(std::size_t index, bool plain, Random& random) const {
  constexpr std::array<double, 5> kShakes = {0, 0.02, 0.1, 0.3, 0.8};
  const double shake = kShakes[random.Below(kShakes.size())];
  if (index < kLeading) return Fixed(index, 0, random);
  Ranking ranking = index < kFixed ? Fixed(index, plain ? 0 : shake, random) : Mixed(shake, random);
  // Both ways find something that the other does not.
  ranking.follows_load = random.Below(2) == 0;
  ranking.orders_stacks = random.Below(4) == 0;
  return ranking;
}

Ranking Rankings::Fixed(std::size_t index, double shake, Random& random) const {
  // A one stands for the load.
  constexpr std::array<std::size_t, kFixed> kLoadKeys = {0, 1, 0, 0, 1, 2, 1, 2};
  Ranking ranking{{}, kLoadKeys[index]};
  ranking.keys.reserve(measures_.size());
  for (const Measures& m : measures_) {
    const double ticks_area = m.ticks * m.bytes;
    const double area = m.positions * m.bytes;
    const std::array<RankingKey, kFixed> keys = {{{1, m.ticks, ticks_area},
                                                  {area, 1, m.bytes},
                                                  {1, m.positions, m.bytes},
                                                  {1, ticks_area, m.ticks},
                                                  {ticks_area, 1, m.bytes},
                                                  {m.positions, area, 1},
                                                  {m.ticks, 1, ticks_area},
                                                  {m.ticks, ticks_area, 1}}};
    ranking.keys.push_back(keys[index]);
    Shake(ranking.keys.back(), shake, random);
  }
  UniteTwins(blocks_, ranking.keys);
  return ranking;
}

Ranking Rankings::Mixed(double shake, Random& random) const {
  const bool in_positions = random.Below(3) != 0;
  const double length = 2 * random.Unit();
  const double bytes = 2 * random.Unit();
  const bool has_load = random.Below(2) != 0;
  const double load = has_load ? 4 * random.Unit() + 0.1 : 1;
  Ranking ranking{{}, has_load ? 0 : Ranking::kNoLoad};
  ranking.keys.reserve(measures_.size());
  for (const Measures& m : measures_) {
    // Comparing x times load^c is comparing x^(1/c) times load.
    const double rest = std::pow(in_positions ? m.positions : m.ticks, length) * std::pow(m.bytes, bytes);
    ranking.keys.push_back({std::pow(rest, 1 / load), m.bytes, m.ticks});
    Shake(ranking.keys.back(), shake, random);
  }
  UniteTwins(blocks_, ranking.keys);
  return ranking;
}

}  // namespace stalloc::planner
