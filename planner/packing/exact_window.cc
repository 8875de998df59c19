#include "planner/packing/exact_window.h"

#include <algorithm>
#include <utility>

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
                                             Bytes ceiling, std::uint64_t node_limit, Work& work) {
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
  FitOutcome fit = FitBelow(Instance(window), frozen, ceiling, {.nodes = node_limit});
  work += fit.work + by_offset.size() * (kWorkOfLook + taken.size());
  if (fit.outcome != CapacitySearch::Outcome::kFound) return std::nullopt;
  fit.offsets.resize(taken.size());
  return std::move(fit.offsets);
}

}  // namespace stalloc::planner
