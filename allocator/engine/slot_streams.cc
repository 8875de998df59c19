#include "allocator/engine/slot_streams.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "allocator/engine/occupancy.h"
#include "allocator/engine/plan_reading.h"

namespace stalloc {
namespace {

template <typename Visit>
void ForEachEntry(const DevicePlan& plan, Visit&& visit) {
  ForEachScript(plan, [&](const Script& script) {
    for (const Entry& entry : script.entries) visit(entry);
  });
  for (const Entry& entry : plan.kept.entries) visit(entry);
}

// Disjoint byte ranges, begin -> end.
class ByteRanges {
 public:
  void Add(Offset begin, Offset end) {
    auto range = ranges_.upper_bound(begin);
    if (range != ranges_.begin() && std::prev(range)->second >= begin) --range;
    while (range != ranges_.end() && range->first <= end) {
      begin = std::min(begin, range->first);
      end = std::max(end, range->second);
      range = ranges_.erase(range);
    }
    ranges_.emplace_hint(range, begin, end);
  }
  [[nodiscard]] bool Meets(Offset begin, Offset end) const {
    const auto range = ranges_.lower_bound(end);
    return range != ranges_.begin() && std::prev(range)->second > begin;
  }

 private:
  std::map<Offset, Offset> ranges_;
};

}  // namespace

std::size_t CountStreams(const DevicePlan& plan) {
  std::size_t count = 1;
  ForEachEntry(plan, [&](const Entry& entry) { count = std::max<std::size_t>(count, std::size_t{entry.stream} + 1); });
  return count;
}

std::uint32_t MainStream(const DevicePlan& plan) {
  std::map<std::uint32_t, Bytes> bytes;
  ForEachEntry(plan, [&](const Entry& entry) {
    if (entry.slot != kNoSlot) bytes[entry.stream] += plan.slots[entry.slot].capacity;
  });
  const auto most =
      std::max_element(bytes.begin(), bytes.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == bytes.end() ? 0 : most->first;
}

std::vector<std::uint16_t> FlagsOfSlots(const DevicePlan& plan) {
  std::map<std::uint32_t, ByteRanges> bytes_of;  // by stream
  ForEachEntry(plan, [&](const Entry& entry) {
    if (entry.slot == kNoSlot) return;
    const Slot& slot = plan.slots[entry.slot];
    bytes_of[entry.stream].Add(slot.offset, slot.offset + slot.capacity);
  });
  const std::uint32_t main_stream = MainStream(plan);
  std::vector<std::uint16_t> flags(plan.slots.size(), 0);
  for (const StreamEdge& edge : plan.stream_edges) flags[edge.from_slot] = LiveRecord::kHandedOver;
  for (std::size_t i = 0; i < flags.size(); ++i) {
    const Slot& slot = plan.slots[i];
    const bool shared = std::any_of(bytes_of.begin(), bytes_of.end(), [&](const auto& stream) {
      return stream.first != main_stream && stream.second.Meets(slot.offset, slot.offset + slot.capacity);
    });
    if (!shared) flags[i] = LiveRecord::kPrivate;
  }
  return flags;
}

}  // namespace stalloc
