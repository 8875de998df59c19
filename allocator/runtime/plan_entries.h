// PlanEntries: which requests of a plan a block of the arena may be, by its place and size.
//
// The engine does not keep the entry of a live block; many entries share a place, one after the other. Built once, in
// memory of its own; lookups take none. Read-only afterwards, so thread-safe. Bytes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "proto/model/plan.h"

namespace stalloc {

class PlanEntries {
 public:
  struct Named {
    Offset offset = 0;
    Bytes bytes = 0;  // at most
    std::uint32_t script = 0;
    std::uint32_t entry = 0;
  };

  explicit PlanEntries(const DevicePlan& plan);

  // In the order of the scripts, those of exactly these (rounded) bytes at the offset.
  [[nodiscard]] std::span<const Named> At(Offset offset, Bytes bytes) const noexcept;

 private:
  std::vector<Named> entries_;  // ascending by offset, bytes, script, entry
};

// The script with that number, counted through prologue and cycle; null if there is none.
[[nodiscard]] const Script* ScriptOf(const DevicePlan& plan, std::uint32_t script) noexcept;

}  // namespace stalloc
