#include "planner/packing/exact_window.h"

#include <algorithm>

#include "planner/packing/capacity_race.h"

namespace stalloc::planner {
namespace {

// What stays and is alive together with any of the taken blocks.
std::vector<BlockIndex> BlocksInTheWay(const Instance& instance, std::span<const BlockIndex> by_offset,
                                       std::span<const BlockIndex> taken) {
  std::vector<BlockIndex> sorted(taken.begin(), taken.end());
  std::sort(sorted.begin(), sorted.end());
  std::vector<BlockIndex> obstacles;
  for (const BlockIndex other : by_offset) {
    const Item& item = instance[other];
    const bool near =
        std::any_of(taken.begin(), taken.end(), [&](BlockIndex block) { return instance[block].Conflicts(item); });
    if (near && !std::binary_search(sorted.begin(), sorted.end(), other)) obstacles.push_back(other);
  }
  return obstacles;
}

}  // namespace

std::optional<std::vector<Offset>> FitWindow(const Instance& instance, std::span<const Offset> offsets,
                                             std::span<const BlockIndex> by_offset, std::span<const BlockIndex> taken,
                                             Bytes ceiling, std::uint64_t node_limit) {
  Problem window;
  std::vector<std::optional<Offset>> frozen;
  for (const BlockIndex block : taken) {
    window.blocks.push_back(instance.problem().blocks[block]);
    frozen.emplace_back();
  }
  for (const BlockIndex block : BlocksInTheWay(instance, by_offset, taken)) {
    window.blocks.push_back(instance.problem().blocks[block]);
    frozen.emplace_back(offsets[block]);
  }
  std::vector<Offset> fit;
  const auto go_on = [] { return false; };
  if (FitBelow(Instance(window), frozen, ceiling, node_limit, go_on, fit) != CapacitySearch::Outcome::kFound) {
    return std::nullopt;
  }
  fit.resize(taken.size());
  return fit;
}

}  // namespace stalloc::planner
