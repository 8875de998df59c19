#include "planner/packing/placer.h"

#include <algorithm>

#include "planner/packing/search_state.h"

namespace stalloc::planner {
namespace {
constexpr unsigned kCallsPerClock = 256;
}

Placer::Placer(const Instance& instance, const SearchState& state)
    : instance_(instance), state_(state), tree_(instance.positions()), offsets_(instance.size()) {}

void Placer::Reset() {
  tree_.Clear();
  height_ = 0;
}

void Placer::Place(BlockIndex block, Offset base) { PlaceAt(block, tree_.LowestFit(instance_[block], base)); }

void Placer::PlaceAt(BlockIndex block, Offset offset) {
  const Item& item = instance_[block];
  const Offset end = offset + item.bytes;
  tree_.Insert(item.span, offset, end);
  if (!item.second.empty()) tree_.Insert(item.second, offset, end);
  offsets_[block] = offset;
  height_ = std::max(height_, end);
}

bool Placer::PlaceAll(std::span<const BlockIndex> order) {
  for (const BlockIndex block : order) {
    Place(block);
    if (Hopeless()) return false;
  }
  return true;
}

bool Placer::Hopeless() {
  if (height_ > state_.height()) return true;
  if (until_clock_-- != 0) return false;
  until_clock_ = kCallsPerClock;
  return state_.OutOfTime();
}

}  // namespace stalloc::planner
