#include "allocator/engine/order/slot_streams.h"

#include <algorithm>

#include "allocator/engine/bytes/occupancy.h"
#include "allocator/engine/bytes/plan_reading.h"

namespace stalloc {

std::size_t CountStreams(const DevicePlan& plan) {
  std::size_t count = 1;
  const auto add = [&](const Entry& entry) { count = std::max(count, std::size_t{entry.stream} + 1); };
  ForEachEntry(plan, add);
  std::for_each(plan.kept.entries.begin(), plan.kept.entries.end(), add);
  return count;
}

std::vector<std::uint16_t> FlagsOfSlots(const DevicePlan& plan) {
  if (CountStreams(plan) == 1) return std::vector<std::uint16_t>(plan.slots.size(), LiveRecord::kPrivate);
  std::vector<std::uint16_t> flags(plan.slots.size(), 0);
  for (const StreamEdge& edge : plan.stream_edges) flags[edge.from_slot] = LiveRecord::kHandedOver;
  return flags;
}

}  // namespace stalloc
