#include "planner/packing/latecomers.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <map>
#include <utility>
#include <vector>

#include "planner/packing/load.h"

namespace stalloc::planner {
namespace {

constexpr Tick kShort = 4;     // a part of a block's life: one that lives no longer goes at once, beside it
constexpr Tick kAlike = 8;     // of the time between two beginnings: ends so near to each other are one
constexpr Tick kStaying = 64;  // of the cycle: what lives for less does not stay

bool Stays(const Block& block, const CycleAxis& cycle) {
  return (block.life.end - block.life.begin) * kStaying >= cycle.length();
}

// The tick at which the first block that stays as this one does begins, if some that go at once come between the two;
// else its own. `kin`: blocks of its size and stream, by their beginnings.
Tick FirstOfItsKind(const std::vector<Block*>& kin, std::size_t at) {
  const Lifetime& own = kin[at]->life;
  const Tick length = own.end - own.begin;
  const auto stays = [&](const Block* block) {
    return std::abs(block->life.end - own.end) * kAlike <= own.begin - block->life.begin;
  };
  const auto first = std::find_if(kin.begin(), kin.begin() + static_cast<std::ptrdiff_t>(at), stays);
  const bool late = std::any_of(first, kin.begin() + static_cast<std::ptrdiff_t>(at), [&](const Block* block) {
    return block->life.end <= own.begin && (block->life.end - block->life.begin) * kShort <= length;
  });
  return late ? (*first)->life.begin : own.begin;
}

}  // namespace

void BeginLatecomersEarly(const CycleAxis& cycle, Bytes least, Bytes height, Problem* problem) {
  std::map<std::pair<Bytes, std::uint32_t>, std::vector<Block*>> kinds;  // by size and stream
  for (Block& block : problem->blocks) {
    const bool recurs = block.life.begin >= cycle.begin && !block.second_life.has_value() && !block.persistent;
    if (recurs && block.bytes >= least) kinds[{block.bytes, block.stream}].push_back(&block);
  }
  std::vector<std::pair<Block*, Tick>> latecomers;
  for (auto& [kind, kin] : kinds) {
    if (std::ranges::none_of(kin, [&](const Block* block) { return block->may_go && Stays(*block, cycle); })) continue;
    std::ranges::stable_sort(kin, {}, [](const Block* block) { return block->life.begin; });
    for (std::size_t at = 0; at < kin.size(); ++at) {
      if (!Stays(*kin[at], cycle)) continue;
      const Tick first = FirstOfItsKind(kin, at);
      if (first < kin[at]->life.begin) latecomers.emplace_back(kin[at], first);
    }
  }
  std::ranges::stable_sort(latecomers, {}, [](const auto& late) { return late.first->life.begin; });
  std::vector<Bytes> load = LoadByTick(*problem, cycle.end);
  for (const auto& [block, first] : latecomers) {
    const auto begin = load.begin() + static_cast<std::ptrdiff_t>(first);
    const auto end = load.begin() + static_cast<std::ptrdiff_t>(block->life.begin);
    if (*std::max_element(begin, end) + block->bytes > height) continue;
    std::for_each(begin, end, [bytes = block->bytes](Bytes& at) { at += bytes; });
    block->life.begin = first;
  }
}

}  // namespace stalloc::planner
