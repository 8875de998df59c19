// Widens a steady model by what later runs saw: sizes and lives that the traced iterations did not have.
#pragma once

#include "absl/status/status.h"
#include "planner/analysis/steady.h"
#include "proto/model/observed.h"

namespace stalloc::planner {

// How many entries of the cycle have changed.
struct Widened {
  std::uint64_t sizes = 0;
  std::uint64_t lives = 0;
};

// Only entries of the cycle: set-up and warm-up happen once. One whose size now varies is dynamic. A block that was
// never seen to be freed when traced stays for good. FailedPrecondition, and nothing changes, if what was observed is
// of a plan with other scripts.
[[nodiscard]] absl::Status Widen(const DeviceTrace& device, const ObservedDevice& observed, SteadyModel* model,
                                 Widened* widened);

}  // namespace stalloc::planner
