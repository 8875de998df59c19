#include "planner/packing/finish/replacer.h"

#include <utility>

namespace stalloc::planner {
namespace {
constexpr std::size_t kPlacementsBetweenLooks = 1024;  // at the stop flag
}

Replacer::Replacer(const Instance& instance, std::function<bool()> should_stop)
    : instance_(instance), should_stop_(std::move(should_stop)), tree_(instance.positions()) {}

void Replacer::Put(BlockIndex block, Offset offset) {
  tree_.Insert(instance_[block], offset);
  ++placements_;
}

std::optional<Offset> Replacer::Find(const Item& item, Bytes height, Offset home, std::span<const Offset> wishes) {
  for (const Offset wish : wishes) {
    if (wish + item.bytes <= height && tree_.LowestFit(item, wish) == wish) return wish;
  }
  Offset fit = tree_.LowestFit(item, home);
  if (fit + item.bytes > height && home > 0) fit = tree_.LowestFit(item, 0);
  return fit + item.bytes <= height ? std::optional(fit) : std::nullopt;
}

std::optional<std::vector<Offset>> Replacer::Run(const std::vector<Offset>& offsets, Bytes height,
                                                 std::span<const BlockIndex> order,
                                                 const std::function<Offset(BlockIndex)>& home, const Wishes& wishes) {
  tree_.Clear();
  std::vector<Offset> placed = offsets;
  std::vector<bool> moves(instance_.size());
  for (const BlockIndex block : order) moves[block] = true;
  for (BlockIndex block = 0; block < instance_.size(); ++block) {
    if (!moves[block]) Put(block, offsets[block]);
  }
  std::vector<Offset> wished;
  for (const BlockIndex block : order) {
    if (placements_ % kPlacementsBetweenLooks == 0 && should_stop_()) return std::nullopt;
    wished.clear();
    if (wishes) wishes(block, placed, &wished);
    const auto fit = Find(instance_[block], height, home ? home(block) : 0, wished);
    if (!fit) return std::nullopt;
    placed[block] = *fit;
    Put(block, *fit);
  }
  return placed;
}

}  // namespace stalloc::planner
