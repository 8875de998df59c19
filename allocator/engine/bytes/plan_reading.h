// How the engine's parts read a plan, and the unit they count in: granules of kBlockAlignment bytes. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "allocator/base/range_set.h"
#include "proto/model/plan.h"
#include "proto/model/plan_walk.h"
#include "proto/model/units.h"

namespace stalloc {

using Granules = std::uint32_t;
using GranuleRange = IndexRange;

// For a request, rounded up; 0 stands for "too large to be in any plan".
[[nodiscard]] constexpr Granules ToGranules(Bytes bytes) noexcept {
  const Bytes granules = BlockBytes(bytes) / kBlockAlignment;
  return granules < 0xffffffffu ? static_cast<Granules>(granules) : 0;
}
// For offsets and slots, which are multiples of kBlockAlignment.
[[nodiscard]] constexpr Granules WholeGranules(Bytes bytes) noexcept {
  return static_cast<Granules>(bytes / kBlockAlignment);
}
[[nodiscard]] constexpr GranuleRange RangeOf(const Slot& slot) noexcept {
  return {WholeGranules(slot.offset), WholeGranules(slot.offset + slot.capacity)};
}
// For the entry's slot; empty if it has none.
[[nodiscard]] inline GranuleRange PlaceOf(const DevicePlan& plan, const Entry& entry) noexcept {
  return entry.slot == kNoSlot ? GranuleRange{} : RangeOf(plan.slots[entry.slot]);
}

// For what set-up requests and keeps for good; they may overlap.
[[nodiscard]] inline std::vector<GranuleRange> PlacesThatStay(const DevicePlan& plan) {
  std::vector<GranuleRange> places;
  for (const Script& script : plan.prologue) {
    for (const Entry& entry : script.entries) {
      const bool stays = entry.entry_class == EntryClass::kPersistent && entry.slot != kNoSlot;
      if (stays) places.push_back(PlaceOf(plan, entry));
    }
  }
  return places;
}

}  // namespace stalloc
