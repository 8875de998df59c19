#include "allocator/engine/order/slot_streams.h"

#include <algorithm>
#include <iterator>
#include <map>

#include "allocator/engine/bytes/occupancy.h"
#include "allocator/engine/bytes/plan_reading.h"

namespace stalloc {
namespace {

template <typename Visit>
void ForEachWithKept(const DevicePlan& plan, Visit&& visit) {
  ForEachEntry(plan, visit);
  for (const Entry& entry : plan.kept.entries) visit(entry);
}

}  // namespace

std::size_t CountStreams(const DevicePlan& plan) {
  std::size_t count = 1;
  ForEachWithKept(plan, [&](const Entry& entry) { count = std::max(count, std::size_t{entry.stream} + 1); });
  return count;
}

std::uint32_t MainStream(const DevicePlan& plan) {
  std::map<std::uint32_t, Bytes> bytes;
  ForEachWithKept(plan, [&](const Entry& entry) {
    if (entry.slot != kNoSlot) bytes[entry.stream] += plan.slots[entry.slot].capacity;
  });
  const auto most =
      std::max_element(bytes.begin(), bytes.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == bytes.end() ? 0 : most->first;
}

std::vector<std::uint16_t> FlagsOfSlots(const DevicePlan& plan) {
  const std::uint32_t main_stream = MainStream(plan);
  std::vector<GranuleRange> of_others;
  ForEachWithKept(plan, [&](const Entry& entry) {
    if (entry.stream != main_stream) of_others.push_back(PlaceOf(plan, entry));
  });
  const std::vector<GranuleRange> without = Beside(of_others, ~Granules{0});
  std::vector<std::uint16_t> flags(plan.slots.size(), 0);
  for (const StreamEdge& edge : plan.stream_edges) flags[edge.from_slot] = LiveRecord::kHandedOver;
  for (std::size_t i = 0; i < flags.size(); ++i) {
    const GranuleRange place = RangeOf(plan.slots[i]);
    const auto above = std::ranges::upper_bound(without, place.lo, {}, &GranuleRange::lo);
    if (above != without.begin() && std::prev(above)->hi >= place.hi) flags[i] = LiveRecord::kPrivate;
  }
  return flags;
}

}  // namespace stalloc
