#include "planner/packing/search/placer.h"

#include <algorithm>
#include <numeric>

namespace stalloc::planner {

Placer::Placer(const Instance& instance)
    : instance_(instance), tree_(instance.positions()), offsets_(instance.size()) {}

void Placer::Reset(const Limits& limits) {
  tree_.Clear();
  height_ = 0;
  limits_ = limits;
  work_of_order_ = 0;
  work_before_ = tree_.work();
}

void Placer::PlaceAt(BlockIndex block, Offset offset) {
  const Item& item = instance_[block];
  tree_.Insert(item, offset);
  offsets_[block] = offset;
  height_ = std::max(height_, offset + item.bytes);
}

void Placer::PlaceStack(std::span<const BlockIndex> stack) {
  if (stack.size() == 1) return PlaceAt(stack.front(), tree_.LowestFit(instance_[stack.front()], 0));
  rises_.clear();
  Bytes top = 0;
  Bytes alignment = 1;  // a base that is a multiple of it keeps every member aligned
  for (const BlockIndex block : stack) {
    const Item& item = instance_[block];
    top = RoundUp(top, item.alignment);
    alignment = std::lcm(alignment, item.alignment);
    rises_.push_back(top);
    top += item.bytes;
  }
  Offset base = 0;
  std::size_t agreed = 0;
  for (std::size_t i = 0; agreed < stack.size(); i = i + 1 == stack.size() ? 0 : i + 1) {
    const Offset wanted = base + rises_[i];
    const Offset fit = tree_.LowestFit(instance_[stack[i]], wanted);
    if (fit == wanted) {
      ++agreed;
      continue;
    }
    base = RoundUp(fit - rises_[i], alignment);
    agreed = base + rises_[i] == fit ? 1 : 0;
  }
  for (std::size_t i = 0; i < stack.size(); ++i) PlaceAt(stack[i], base + rises_[i]);
}

bool Placer::PlaceAll(const StackOrder& order) {
  constexpr std::size_t kStacksBetweenLooks = 256;  // at the stop flag
  work_of_order_ = kWorkOfSort * order.blocks().size();
  for (std::size_t i = 0; i < order.size(); ++i) {
    PlaceStack(order[i]);
    if (height_ > limits_.height || work() > limits_.work) return false;
    if (i % kStacksBetweenLooks == 0 && limits_.stop != nullptr && limits_.stop->IsStopped()) return false;
  }
  return true;
}

}  // namespace stalloc::planner
