#include "allocator/engine/late_rooms.h"

#include <algorithm>
#include <span>

namespace stalloc {
namespace {

using Gap = IdleGaps::Gap;

void AddSlot(const DevicePlan& plan, const Entry& entry, std::vector<Gap>* used) {
  if (entry.slot == kNoSlot) return;
  const Slot& slot = plan.slots[entry.slot];
  used->push_back({static_cast<std::uint32_t>(slot.offset / kBlockAlignment),
                   static_cast<std::uint32_t>((slot.offset + slot.capacity) / kBlockAlignment)});
}

// Slots of blocks that stay for good. They may not have come yet.
std::vector<Gap> SlotsForGood(const DevicePlan& plan) {
  std::vector<Gap> used;
  for (const Script& script : plan.prologue) {
    for (const Entry& entry : script.entries) {
      if (entry.entry_class == EntryClass::kPersistent) AddSlot(plan, entry, &used);
    }
  }
  for (const Entry& entry : plan.kept.entries) AddSlot(plan, entry, &used);
  return used;
}

// What lies beside these and the entries' slots, ascending.
std::vector<Gap> Beside(const DevicePlan& plan, std::vector<Gap> used, std::span<const Entry> entries,
                        std::uint32_t limit) {
  for (const Entry& entry : entries) AddSlot(plan, entry, &used);
  std::ranges::sort(used, {}, &Gap::lo);
  std::vector<Gap> beside;
  std::uint32_t at = 0;
  for (const Gap& gap : used) {
    if (gap.lo > at) beside.push_back({at, gap.lo});
    at = std::max(at, gap.hi);
  }
  if (at < limit) beside.push_back({at, limit});
  return beside;
}

}  // namespace

LateRooms::LateRooms(const DevicePlan& plan, std::uint32_t limit) {
  if (plan.cycle.empty()) return;
  const std::vector<Gap> for_good = SlotsForGood(plan);
  std::span<const Entry> entries = plan.cycle.front().entries;
  for (std::vector<Gap>& room : rooms_) {
    entries = entries.first(entries.size() / 2);
    if (!entries.empty()) room = Beside(plan, for_good, entries, limit);
  }
}

}  // namespace stalloc
