#include "allocator/engine/late_rooms.h"

#include <algorithm>
#include <cstddef>
#include <utility>

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

// What lies beside these, ascending.
std::vector<Gap> Beside(std::vector<Gap> used, std::uint32_t limit) {
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
  const std::vector<Gap> for_good = SlotsForGood(plan);
  std::size_t part = 1;
  for (std::vector<Gap>& room : rooms_) {
    part *= 2;
    std::vector<Gap> used = for_good;
    for (const Script& script : plan.cycle) {
      for (std::size_t i = 0; i < script.entries.size() / part; ++i) AddSlot(plan, script.entries[i], &used);
    }
    if (used.size() > for_good.size()) room = Beside(std::move(used), limit);
  }
}

}  // namespace stalloc
