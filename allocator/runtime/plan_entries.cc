#include "allocator/runtime/plan_entries.h"

#include <algorithm>
#include <tuple>

namespace stalloc {
namespace {

auto PlaceOf(const PlanEntries::Named& named) { return std::tuple(named.offset, named.bytes); }

}  // namespace

const Script* ScriptOf(const DevicePlan& plan, std::uint32_t script) noexcept {
  if (script < plan.prologue.size()) return &plan.prologue[script];
  const std::size_t in_cycle = script - plan.prologue.size();
  return in_cycle < plan.cycle.size() ? &plan.cycle[in_cycle] : nullptr;
}

PlanEntries::PlanEntries(const DevicePlan& plan) {
  const std::size_t scripts = plan.prologue.size() + plan.cycle.size();
  for (std::uint32_t script = 0; script < scripts; ++script) {
    const std::vector<Entry>& entries = ScriptOf(plan, script)->entries;
    for (std::uint32_t at = 0; at < entries.size(); ++at) {
      const Entry& entry = entries[at];
      if (entry.slot == kNoSlot) continue;
      entries_.push_back({plan.slots[entry.slot].offset, entry.bytes, script, at});
    }
  }
  std::stable_sort(entries_.begin(), entries_.end(),
                   [](const Named& a, const Named& b) { return PlaceOf(a) < PlaceOf(b); });
}

std::span<const PlanEntries::Named> PlanEntries::At(Offset offset, Bytes bytes) const noexcept {
  const Named wanted{.offset = offset, .bytes = bytes};
  const auto [first, last] = std::equal_range(entries_.begin(), entries_.end(), wanted,
                                              [](const Named& a, const Named& b) { return PlaceOf(a) < PlaceOf(b); });
  return {first, last};
}

}  // namespace stalloc
