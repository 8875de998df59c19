#include "allocator/engine/order/slot_streams.h"

#include <algorithm>

#include "allocator/engine/bytes/occupancy.h"
#include "allocator/engine/bytes/plan_reading.h"

namespace stalloc {

PlanStreams::PlanStreams(const DevicePlan& plan) {
  const auto add = [&](const Entry& entry) {
    if (ordinals_.empty() || ordinals_.back() != entry.stream) ordinals_.push_back(entry.stream);
  };
  ForEachEntry(plan, add);
  std::for_each(plan.kept.entries.begin(), plan.kept.entries.end(), add);
  std::sort(ordinals_.begin(), ordinals_.end());
  ordinals_.erase(std::unique(ordinals_.begin(), ordinals_.end()), ordinals_.end());
  ordinals_.resize(std::min<std::size_t>(ordinals_.size(), kNoStream));
  ordinals_.shrink_to_fit();
}

StreamIndex PlanStreams::NumberOf(std::uint32_t ordinal) const {
  const auto found = std::lower_bound(ordinals_.begin(), ordinals_.end(), ordinal);
  if (found == ordinals_.end() || *found != ordinal) return kNoStream;
  return static_cast<StreamIndex>(found - ordinals_.begin());
}

std::vector<std::uint16_t> FlagsOfSlots(const DevicePlan& plan, const PlanStreams& streams) {
  if (streams.size() <= 1) return std::vector<std::uint16_t>(plan.slots.size(), LiveRecord::kPrivate);
  std::vector<std::uint16_t> flags(plan.slots.size(), 0);
  for (const StreamEdge& edge : plan.stream_edges) flags[edge.from_slot] = LiveRecord::kHandedOver;
  return flags;
}

}  // namespace stalloc
