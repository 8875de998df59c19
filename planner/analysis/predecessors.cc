#include "planner/analysis/predecessors.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "planner/packing/last_holders.h"

namespace stalloc::planner {

void FillPredecessors(DevicePlan* plan) {
  LastHolders holders;
  const auto sweep = [&](const std::vector<Script>& scripts) {
    for (const Script& script : scripts) {
      for (const Entry& entry : script.entries) {
        if (entry.slot == kNoSlot) {
          continue;
        }
        Slot& slot = plan->slots[entry.slot];
        holders.Take(slot.offset, slot.offset + slot.capacity, entry.slot, [&](std::uint32_t holder, Bytes) {
          if (holder != entry.slot) {
            slot.predecessors.push_back(holder);
          }
        });
      }
    }
  };
  sweep(plan->prologue);
  sweep(plan->cycle);
  sweep(plan->cycle);
  for (Slot& slot : plan->slots) {
    auto& list = slot.predecessors;
    std::sort(list.begin(), list.end());
    list.erase(std::unique(list.begin(), list.end()), list.end());
  }
}

}  // namespace stalloc::planner
