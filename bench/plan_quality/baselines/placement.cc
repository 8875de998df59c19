#include "bench/plan_quality/baselines/placement.h"

#include <algorithm>
#include <numeric>

namespace stalloc::planner {
namespace {

constexpr std::size_t kBlocksBetweenLooks = 64;  // at the stop flag

// Where the block starts in the gap; none if it does not fit.
std::optional<Offset> Fit(const Block& block, const Gap& gap) {
  const Offset start = RoundUp(gap.begin, block.alignment);
  if (gap.end == Gap::kOpen || start + block.bytes <= gap.end) return start;
  return std::nullopt;
}

Offset Lowest(const Block& block, GapIndex& index) {
  Offset found = 0;
  index.ForEachGap(block, [&](const Gap& gap) {
    const std::optional<Offset> start = Fit(block, gap);
    if (start) found = *start;
    return !start;
  });
  return found;
}

// `height`: end of the open gap, if it is to compete with the others.
Offset Smallest(const Block& block, std::optional<Bytes> height, GapIndex& index) {
  Offset found = 0;
  Bytes least = Gap::kOpen;
  index.ForEachGap(block, [&](Gap gap) {
    const bool open = gap.end == Gap::kOpen;
    const std::optional<Offset> start = Fit(block, gap);
    if (open && height && start && *start + block.bytes <= *height) gap.end = *height;
    const Bytes size = gap.end == Gap::kOpen ? Gap::kOpen : gap.end - gap.begin;
    const bool only_choice = open && least == Gap::kOpen;
    if (start && (size < least || only_choice)) {
      found = *start;
      least = size;
    }
    return true;
  });
  return found;
}

}  // namespace

BlockOrder SortedBlocks(const Problem& problem, const std::function<bool(const Block&, const Block&)>& before) {
  BlockOrder order(problem.blocks.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return before(problem.blocks[a], problem.blocks[b]); });
  return order;
}

Tick LifeSpan(const Block& block) {
  if (!block.second_life) return block.life.end - block.life.begin;
  return std::max(block.life.end, block.second_life->end) - std::min(block.life.begin, block.second_life->begin);
}

bool IsStopped(const SolveOptions& options) { return options.stop != nullptr && *options.stop; }

std::optional<Packing> PlaceInOrder(const Problem& problem, const BlockOrder& order, GapChoice choice,
                                    const SolveOptions& options, GapIndex& index) {
  index.Clear();
  Packing packing{.offsets = std::vector<Offset>(problem.blocks.size())};
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (i % kBlocksBetweenLooks == 0 && IsStopped(options)) return std::nullopt;
    const Block& block = problem.blocks[order[i]];
    Offset& offset = packing.offsets[order[i]];
    switch (choice) {
      case GapChoice::kLowest:
        offset = Lowest(block, index);
        break;
      case GapChoice::kSmallest:
        offset = Smallest(block, std::nullopt, index);
        break;
      case GapChoice::kSmallestUnder:
        offset = Smallest(block, packing.height, index);
        break;
    }
    index.Insert(block, offset);
    packing.height = std::max(packing.height, offset + block.bytes);
  }
  return packing;
}

Packing SolveInOrder(const Problem& problem, const BlockOrder& order, GapChoice choice, const SolveOptions& options) {
  GapIndex index(problem);
  std::optional<Packing> packing = PlaceInOrder(problem, order, choice, options, index);
  if (!packing) return {};
  if (options.on_progress) options.on_progress(packing->height);
  return *std::move(packing);
}

}  // namespace stalloc::planner
