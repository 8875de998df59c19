// How the engine's parts read a plan. Pure.
#pragma once

#include <cstdint>

#include "proto/model/plan.h"
#include "proto/model/units.h"

namespace stalloc {

// Iterations do not agree on it: its size varies, or it is not always there.
[[nodiscard]] inline bool IsVaryingEntry(const Entry& entry) noexcept {
  return entry.entry_class == EntryClass::kDynamic || entry.entry_class == EntryClass::kOptional;
}

// Of offsets and slots, which are multiples of kBlockAlignment. A request's size is rounded up: see ToGranules.
[[nodiscard]] constexpr std::uint32_t WholeGranules(Bytes bytes) noexcept {
  return static_cast<std::uint32_t>(bytes / kBlockAlignment);
}

// Calls visit(script) for the prologue's scripts and then the cycle's: the order in which scripts are counted.
template <typename Visit>
void ForEachScript(const DevicePlan& plan, Visit&& visit) {
  for (const Script& script : plan.prologue) visit(script);
  for (const Script& script : plan.cycle) visit(script);
}

}  // namespace stalloc
