#include "bench/replay/expandable_upstream.h"

namespace stalloc::bench {
namespace {

// Linux maps from the top of the address space downward, and programs near 0x55... or at its bottom.
constexpr Address kBase = Address{1} << 45;

}  // namespace

void* ExpandableUpstream::Allocate(Bytes requested, StreamHandle stream) {
  if (requested == 0) return nullptr;
  const Bytes bytes = BlockBytes(requested);
  const auto ordinal = static_cast<std::uint32_t>(streams_.size());
  const auto block = model_.Allocate(
      bytes, {.stream = streams_.try_emplace(stream, ordinal).first->second, .small = bytes <= kSmallRequest});
  const auto place = model_.PlaceOf(block);
  const Address range = kBase + place.pool * planner::ExpandableSimulation::kRangeBytes;
  void* const pointer = reinterpret_cast<void*>(range + place.address);
  live_.emplace(pointer, block);
  peak_ = std::max(peak_, held());
  return pointer;
}

void ExpandableUpstream::Free(void* pointer) noexcept {
  const auto found = live_.find(pointer);
  if (found == live_.end()) return;
  model_.Free(found->second);
  live_.erase(found);
}

}  // namespace stalloc::bench
