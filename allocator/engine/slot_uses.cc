#include "allocator/engine/slot_uses.h"

#include <algorithm>

#include "allocator/engine/plan_reading.h"

namespace stalloc {
namespace {

// Calls visit(part, entry) for each part that an entry's slot has bytes in; entries ascend.
template <typename Visit>
void ForEachUse(const DevicePlan& plan, Bytes unit, Visit&& visit) {
  std::uint32_t number = 0;
  ForEachScript(plan, [&](const Script& script) {
    for (const Entry& entry : script.entries) {
      if (entry.slot != kNoSlot) {
        const Slot& slot = plan.slots[entry.slot];
        for (Offset at = slot.offset / unit; at * unit < slot.offset + slot.capacity; ++at) visit(at, number);
      }
      ++number;
    }
  });
}

std::uint64_t EntryCount(const std::vector<Script>& scripts) {
  std::uint64_t entries = 0;
  for (const Script& script : scripts) entries += script.entries.size();
  return entries;
}

}  // namespace

SlotUses::SlotUses(const DevicePlan& plan, Bytes unit)
    : begins_(RoundUp(plan.arena_bytes, unit) / unit + 1),
      cycle_(EntryCount(plan.prologue)),
      end_(cycle_ + EntryCount(plan.cycle)) {
  ForEachUse(plan, unit, [this](Offset part, std::uint32_t) { ++begins_[part + 1]; });
  for (std::size_t i = 1; i < begins_.size(); ++i) begins_[i] += begins_[i - 1];
  dues_.resize(begins_.back());
  std::vector<std::size_t> next(begins_.begin(), begins_.end() - 1);
  ForEachUse(plan, unit, [&](Offset part, std::uint32_t entry) { dues_[next[part]++] = entry; });
}

std::uint64_t SlotUses::UntilDue(std::size_t part, std::uint64_t now) const noexcept {
  if (part + 1 >= begins_.size()) return kNever;
  const auto begin = dues_.begin() + static_cast<std::ptrdiff_t>(begins_[part]);
  const auto end = dues_.begin() + static_cast<std::ptrdiff_t>(begins_[part + 1]);
  const auto due = std::lower_bound(begin, end, now);
  if (due != end) return *due - now;
  const auto first = std::lower_bound(begin, end, cycle_);  // of the next round
  return first != end ? *first - cycle_ + (end_ - std::min(now, end_)) : kNever;
}

}  // namespace stalloc
