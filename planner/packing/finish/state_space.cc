#include "planner/packing/finish/state_space.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "planner/packing/finish/replacer.h"

namespace stalloc::planner {
namespace {

bool EndsBefore(const Block& block, Tick tick) { return block.life.end <= tick && !block.second_life.has_value(); }

// Blocks of `early` that lie where a block that now begins earlier does: they are alive together in it.
bool SomethingIsInTheWay(const Problem& early, const Problem& before, const Packing& packing, Tick cycle_begin) {
  std::vector<BlockIndex> state;  // by offset; disjoint, since all are alive at the end
  for (BlockIndex i = 0; i < early.blocks.size(); ++i) {
    if (early.blocks[i].life != before.blocks[i].life) state.push_back(i);
  }
  const auto offset_of = [&](BlockIndex block) { return packing.offsets[block]; };
  std::ranges::sort(state, {}, offset_of);
  for (BlockIndex i = 0; i < early.blocks.size(); ++i) {
    const Block& block = early.blocks[i];
    if (!EndsBefore(block, cycle_begin)) continue;
    const Offset end = packing.offsets[i] + block.bytes;
    auto at = std::ranges::lower_bound(state, end, {}, offset_of);
    while (at != state.begin() && packing.offsets[*--at] + early.blocks[*at].bytes > packing.offsets[i]) {
      if (block.life.begin < before.blocks[*at].life.begin) return true;
    }
  }
  return false;
}

}  // namespace

void BeginStateEarly(Tick end, Bytes height, Problem* problem) {
  std::vector<Block*> state;  // by begin
  for (Block& block : problem->blocks) {
    if (block.persistent && block.life.end == end && block.life.begin > 0) state.push_back(&block);
  }
  std::ranges::stable_sort(state, {}, [](const Block* block) { return block->life.begin; });
  const std::vector<Bytes> load = LoadByTick(*problem, end);
  Bytes space = height;  // of all ticks before `tick`, the least
  std::size_t tick = 0;
  for (Block* block : state) {
    for (; tick < static_cast<std::size_t>(block->life.begin); ++tick) space = std::min(space, height - load[tick]);
    if (block->bytes > space) continue;
    space -= block->bytes;
    block->life.begin = 0;
  }
}

void KeepStateSpace(const CycleAxis& cycle, std::span<const std::uint32_t> twins, Problem* problem, Packing* packing) {
  Problem early = *problem;
  BeginStateEarly(cycle.end, packing->height, &early);
  if (SomethingIsInTheWay(early, *problem, *packing, cycle.begin)) {
    std::vector<BlockIndex> order;
    for (BlockIndex i = 0; i < early.blocks.size(); ++i) {
      if (EndsBefore(early.blocks[i], cycle.begin)) order.push_back(i);
    }
    // With its steady twin's place first iteration and cycle are packed alike; what only the first one has fills gaps.
    std::ranges::stable_sort(
        order, {}, [&](BlockIndex block) { return std::tuple(twins[block] == kNoTwin, ~early.blocks[block].bytes); });
    const Instance instance(early);
    Replacer replacer(instance, [] { return false; });
    const auto place_of_twin = [&](BlockIndex block, const std::vector<Offset>& offsets, std::vector<Offset>* wishes) {
      if (twins[block] != kNoTwin) wishes->push_back(offsets[twins[block]]);
    };
    std::optional<std::vector<Offset>> offsets =
        replacer.Run(packing->offsets, packing->height, order, nullptr, place_of_twin);
    if (!offsets.has_value()) return;
    packing->offsets = *std::move(offsets);
  }
  *problem = std::move(early);
}

}  // namespace stalloc::planner
