#include "planner/analysis/turns.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

namespace stalloc::planner {
namespace {

// Calls visit(first, block): the block of an entry in copy 0 and, where it is another, in a later copy.
template <typename Visit>
void ForEachTurn(const Timeline& timeline, const Visit& visit) {
  const std::size_t cycle = timeline.scripts.size() - timeline.prologue;
  const std::size_t period = cycle / timeline.copies;
  for (std::size_t s = period; s < cycle; ++s) {
    const std::vector<TimelineEntry>& first = timeline.scripts[timeline.prologue + s % period].entries;
    const std::vector<TimelineEntry>& later = timeline.scripts[timeline.prologue + s].entries;
    for (std::size_t e = 0; e < first.size(); ++e) {
      if (later[e].block != first[e].block) visit(first[e].block, later[e].block);
    }
  }
}

// Two lives are never both there, and no third one is.
bool MayShare(const Problem& problem, std::uint32_t first, std::uint32_t second) {
  const Block& a = problem.blocks[first];
  const Block& b = problem.blocks[second];
  return !a.second_life.has_value() && !b.second_life.has_value() && a.life.end <= b.life.begin;
}

// At some tick both are alive.
bool AreTogether(const Block& a, const Block& b) {
  const auto is_with = [&](const Lifetime& life) {
    return life.Overlaps(b.life) || (b.second_life && life.Overlaps(*b.second_life));
  };
  return is_with(a.life) || (a.second_life && is_with(*a.second_life));
}

// Makes one block of an entry's block in copy 0 and that in a later copy where `joins` says so. Returns what number
// each block has now.
template <typename Joins>
std::vector<std::uint32_t> Join(Timeline* timeline, const Joins& joins) {
  std::vector<Block>& blocks = timeline->problem.blocks;
  std::vector<std::uint32_t> successor(blocks.size(), kNone);
  ForEachTurn(*timeline, [&](std::uint32_t first, std::uint32_t block) {
    if (!MayShare(timeline->problem, first, block) || !joins(first, block)) return;
    blocks[first].second_life = blocks[block].life;
    successor[block] = first;
  });
  std::vector<std::uint32_t> numbers(blocks.size());
  std::uint32_t next = 0;
  for (std::uint32_t block = 0; block < blocks.size(); ++block) {
    if (successor[block] != kNone) {
      numbers[block] = numbers[successor[block]];  // of copy 0, hence before it
      continue;
    }
    numbers[block] = next;
    blocks[next] = blocks[block];
    blocks[next].id = next;
    timeline->twins[next++] = timeline->twins[block];
  }
  blocks.resize(next);
  timeline->twins.resize(next);
  RenumberBlocks(numbers, timeline);
  return numbers;
}

// By tick of the timeline: what one place for all would make of its load. What has several places all the same has
// all of them all the time.
std::vector<Bytes> LoadOfOnePlace(const Timeline& timeline) {
  std::vector<Bytes> change(static_cast<std::size_t>(timeline.end) + 1);
  const std::vector<Block>& blocks = timeline.problem.blocks;
  std::vector<bool> crosses(blocks.size());
  ForEachTurn(timeline, [&](std::uint32_t first, std::uint32_t block) {
    if (AreTogether(blocks[first], blocks[block])) crosses[first] = true;
  });
  ForEachTurn(timeline, [&](std::uint32_t first, std::uint32_t block) { crosses[block] = crosses[first]; });
  const auto add = [&](Lifetime life, Bytes bytes) {
    change[static_cast<std::size_t>(life.begin)] += bytes;
    change[static_cast<std::size_t>(life.end)] -= bytes;
  };
  for (std::size_t i = 0; i < crosses.size(); ++i) {
    const Block& block = blocks[i];
    add(crosses[i] ? Lifetime{timeline.cycle_begin, timeline.end} : block.life, block.bytes);
    if (!crosses[i] && block.second_life) add(*block.second_life, block.bytes);
  }
  std::partial_sum(change.begin(), change.end(), change.begin());
  return change;
}

}  // namespace

bool CrossesIterations(const Timeline& timeline) {
  return std::ranges::any_of(timeline.problem.blocks, [&](const Block& block) {
    return block.second_life.has_value() && block.life.end == timeline.end;
  });
}

std::uint64_t CountOfSeveralPlaces(const Timeline& timeline) {
  const auto cycle = timeline.scripts.begin() + timeline.prologue;
  const auto period = static_cast<std::ptrdiff_t>((timeline.scripts.size() - timeline.prologue) / timeline.copies);
  std::uint64_t several = 0;
  for (auto script = cycle; script < cycle + period; ++script) {
    for (std::size_t e = 0; e < script->entries.size(); ++e) {
      bool differs = false;
      for (auto later = script; later < timeline.scripts.end(); later += period) {
        differs |= later->entries[e].block != script->entries[e].block;
        if (timeline.scripts.end() - later <= period) break;
      }
      several += differs ? 1 : 0;
    }
  }
  return several;
}

Bytes BoundOfOnePlace(const Timeline& timeline) {
  const std::vector<Bytes> load = LoadOfOnePlace(timeline);
  return *std::max_element(load.begin(), load.end());
}

std::vector<std::uint32_t> JoinLoose(Timeline* timeline, Bytes height) {
  const std::vector<Bytes> load = LoadOfOnePlace(*timeline);
  // How many ticks before each one are above the height.
  std::vector<std::uint32_t> above(load.size() + 1);
  for (std::size_t tick = 0; tick < load.size(); ++tick) above[tick + 1] = above[tick] + (load[tick] > height ? 1 : 0);
  const auto is_loose = [&](std::uint32_t block) {
    const Lifetime& life = timeline->problem.blocks[block].life;
    return above[static_cast<std::size_t>(life.end)] == above[static_cast<std::size_t>(life.begin)];
  };
  return Join(timeline, [&](std::uint32_t first, std::uint32_t block) { return is_loose(first) && is_loose(block); });
}

void JoinTurns(Timeline* timeline, Packing* packing) {
  const std::vector<std::uint32_t> numbers = Join(timeline, [&](std::uint32_t first, std::uint32_t block) {
    return packing->offsets[first] == packing->offsets[block];
  });
  for (std::size_t block = 0; block < numbers.size(); ++block)
    packing->offsets[numbers[block]] = packing->offsets[block];
  packing->offsets.resize(timeline->problem.blocks.size());
}

}  // namespace stalloc::planner
