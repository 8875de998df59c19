// Which requests of varying size, and which that are not in every iteration, get slots of their own. The others are
// left to the room that the slots leave idle (allocator/engine/dynamic_space.h). Each choice is another packing
// problem.
#pragma once

#include <cmath>
#include <cstdint>

#include "proto/model/plan.h"

namespace stalloc::planner {

enum class SlotPolicy : std::uint8_t {
  kStaticOnly,  // none of them
  kTemplate,    // all, each for the size it has in the template: a whole iteration is packed
  kLargest,     // all, each for the largest size seen, and headroom
};

// As reports have it: whose slots.
[[nodiscard]] constexpr const char* SlotPolicyName(SlotPolicy policy) {
  switch (policy) {
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

  [[nodiscard]] bool GivesSlotsToVarying() const { return policy != SlotPolicy::kStaticOnly; }
  // Of the slot of a request that is given one. A multiple of kBlockAlignment.
  [[nodiscard]] Bytes CapacityOf(EntryClass entry_class, Bytes bytes, Bytes max_bytes) const {
    if (entry_class != EntryClass::kDynamic || policy != SlotPolicy::kLargest) {
      return bytes;
    }
    return RoundUp(static_cast<Bytes>(std::ceil(static_cast<double>(max_bytes) * (1 + headroom))), kBlockAlignment);
  }
};

}  // namespace stalloc::planner
