// Which requests of varying size, and which that are not in every iteration, get slots of their own. The others are
// left to the space that the slots leave idle (allocator/engine/place/dynamic_space.h). Each choice is another packing
// problem.
//
// Small ones (SteadyModel::small_bytes) have slots under every choice, half as large again as the largest size seen:
// they weigh next to nothing, the arena looks for no other space for them, and upstream takes five times as long as a
// slot.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "proto/model/plan.h"

namespace stalloc::planner {

enum class SlotPolicy : std::uint8_t {
  kWhatStays,   // none of them, nor any other that an iteration frees again, but small ones
  kStaticOnly,  // none of them but small ones
  kTemplate,    // all, each for the size it has in the template: a whole iteration is packed
  kLargest,     // all, each for the largest size seen, and headroom
};

// As reports have it: whose slots.
[[nodiscard]] constexpr const char* SlotPolicyName(SlotPolicy policy) {
  switch (policy) {
    case SlotPolicy::kWhatStays:
      return "slots for what stays";
    case SlotPolicy::kStaticOnly:
      return "no slots";
    case SlotPolicy::kTemplate:
      return "slots of the template's sizes";
    case SlotPolicy::kLargest:
      return "slots of the largest sizes";
  }
  return "?";
}

struct SlotChoice {
  SlotPolicy policy = SlotPolicy::kStaticOnly;
  double headroom = 0;  // with kLargest: as a share of the largest size

  bool operator==(const SlotChoice&) const = default;

  // To a request that varies.
  [[nodiscard]] bool GivesSlotTo(Bytes max_bytes, Bytes small_bytes) const {
    return policy == SlotPolicy::kTemplate || policy == SlotPolicy::kLargest || max_bytes < small_bytes;
  }
  // For the slot of a request that is given one. A multiple of kBlockAlignment.
  [[nodiscard]] Bytes CapacityOf(EntryClass entry_class, Bytes bytes, Bytes max_bytes, Bytes small_bytes) const {
    if (entry_class != EntryClass::kDynamic) return bytes;
    const Bytes small = max_bytes < small_bytes ? RoundUp(max_bytes + max_bytes / 2, kBlockAlignment) : bytes;
    if (policy != SlotPolicy::kLargest) return small;
    const auto largest = static_cast<Bytes>(std::ceil(static_cast<double>(max_bytes) * (1 + headroom)));
    return std::max(small, RoundUp(largest, kBlockAlignment));
  }
};

}  // namespace stalloc::planner
