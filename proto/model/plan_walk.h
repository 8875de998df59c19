// Walks over a plan's scripts and entries. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "proto/model/plan.h"

namespace stalloc {

// For an arena that is served before there is a plan.
[[nodiscard]] inline bool IsEmpty(const DevicePlan& plan) noexcept {
  return plan.arena_bytes == 0 && plan.prologue.empty() && plan.cycle.empty();
}

// Iterations do not agree on it: its size varies, or it is not always there.
[[nodiscard]] inline bool IsVaryingEntry(const Entry& entry) noexcept {
  return entry.entry_class == EntryClass::kDynamic || entry.entry_class == EntryClass::kOptional;
}

// Calls visit(script) for the prologue's scripts and then the cycle's: the order in which scripts are counted.
template <typename Visit>
void ForEachScript(const DevicePlan& plan, Visit&& visit) {
  for (const Script& script : plan.prologue) visit(script);
  for (const Script& script : plan.cycle) visit(script);
}
// Calls visit(entry) for their entries, in the order in which these are counted.
template <typename Visit>
void ForEachEntry(const DevicePlan& plan, Visit&& visit) {
  ForEachScript(plan, [&](const Script& script) {
    for (const Entry& entry : script.entries) visit(entry);
  });
}

// The number of each script's first entry, so counted, and of all of them.
[[nodiscard]] inline std::vector<std::uint32_t> ScriptBegins(const DevicePlan& plan) {
  std::vector<std::uint32_t> begins{0};
  ForEachScript(plan, [&](const Script& script) {
    begins.push_back(begins.back() + static_cast<std::uint32_t>(script.entries.size()));
  });
  return begins;
}

}  // namespace stalloc
