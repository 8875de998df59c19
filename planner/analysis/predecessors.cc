#include "planner/analysis/predecessors.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <vector>

namespace stalloc::planner {
namespace {

// Who held each byte last. Ranges are disjoint; bytes that nobody held are absent.
class LastHolders {
 public:
  // Calls visit(slot) for every holder of a byte in [begin, end), then makes `slot` the holder of all of it.
  template <typename Visit>
  void Take(Offset begin, Offset end, std::uint32_t slot, Visit visit) {
    Split(begin);
    Split(end);
    auto range = ranges_.lower_bound(begin);
    while (range != ranges_.end() && range->first < end) {
      visit(range->second.slot);
      range = ranges_.erase(range);
    }
    ranges_.emplace(begin, Range{end, slot});
  }

 private:
  struct Range {
    Offset end = 0;
    std::uint32_t slot = 0;
  };

  void Split(Offset at) {
    auto range = ranges_.upper_bound(at);
    if (range == ranges_.begin()) {
      return;
    }
    range = std::prev(range);
    if (range->first < at && at < range->second.end) {
      ranges_.emplace(at, range->second);
      range->second.end = at;
    }
  }

  std::map<Offset, Range> ranges_;
};

}  // namespace

void FillPredecessors(DevicePlan* plan) {
  LastHolders holders;
  const auto sweep = [&](const std::vector<Script>& scripts) {
    for (const Script& script : scripts) {
      for (const Entry& entry : script.entries) {
        if (entry.slot == kNoSlot) {
          continue;
        }
        Slot& slot = plan->slots[entry.slot];
        holders.Take(slot.offset, slot.offset + slot.capacity, entry.slot, [&](std::uint32_t holder) {
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
