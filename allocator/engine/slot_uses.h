// SlotUses: when the plan next needs each part of the arena. Whoever lends memory lends what is needed last.
//
// Time is counted in requests, along the prologue and the cycle, whose rounds repeat. A part is needed when an entry is
// due whose slot has bytes in it. Built when a plan is loaded, O(entries x parts of a slot); read-only and thread-safe
// afterwards. Sizes are bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "proto/model/plan.h"

namespace stalloc {

class SlotUses {
 public:
  static constexpr std::uint64_t kNever = std::numeric_limits<std::uint64_t>::max();

  // Parts of `unit` bytes each, from the arena's base up to the plan's height.
  SlotUses(const DevicePlan& plan, Bytes unit);

  // Requests from `now` (an entry, counted through prologue and cycle) until a slot in a part is due: 0 if now.
  [[nodiscard]] std::uint64_t UntilDue(std::size_t part, std::uint64_t now) const noexcept;
  [[nodiscard]] std::uint64_t cycle_length() const noexcept { return end_ - cycle_; }

 private:
  std::vector<std::size_t> begins_;  // in dues_, by part; and one more
  std::vector<std::uint32_t> dues_;  // entries, ascending for each part
  std::uint64_t cycle_ = 0;          // the first entry of the cycle
  std::uint64_t end_ = 0;            // of the cycle
};

}  // namespace stalloc
