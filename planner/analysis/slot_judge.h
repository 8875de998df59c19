// Decides which requests of varying size get slots, and computes what a plan would reserve: by trial (planner/trial),
// which the analysis does not know.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/analysis/slot_choice.h"
#include "planner/analysis/steady.h"
#include "planner/analysis/traced_rank.h"
#include "planner/packing/problem/work.h"
#include "proto/model/plan.h"

namespace stalloc::planner {

struct PackingOptions;

// What serving held-out iterations by one candidate's plan came to: the worst of them. Bytes.
struct TrialOutcome {
  SlotChoice choice;
  bool served = false;       // false: the slots alone hold more than another candidate, so that nothing else was tried
  Bytes plan_bytes = 0;      // the arena as planned; if not served, the lower bound of it
  Bytes arena_bytes = 0;     // as mapped at its highest
  Bytes upstream_bytes = 0;  // what an allocator outside the arena holds at most
  Bytes peak_live_bytes = 0;
  std::uint64_t requests = 0;
  std::uint64_t slot_hits = 0;
  std::uint64_t dynamic_hits = 0;  // in the arena, without a slot
  std::uint64_t times_moved = 0;   // requests that idle chunks were moved for
  double seconds = 0;

  [[nodiscard]] Bytes held_bytes() const { return arena_bytes + upstream_bytes; }
  [[nodiscard]] double efficiency() const {
    return held_bytes() == 0 ? 0.0 : static_cast<double>(peak_live_bytes) / static_cast<double>(held_bytes());
  }
};

struct TrialReport {
  std::vector<TrialOutcome> candidates;  // empty: all come to the same plan, or
  bool too_large = false;                // the work allowed is too little to try anything
  std::size_t taken = 0;                 // of them
  std::vector<std::uint32_t> held_out;   // iterations that the tried plans did not know; empty: too few were traced
  Work work = 0;                         // that was spent
};

class SlotJudge {
 public:
  virtual ~SlotJudge() = default;
  // `device` is one of `traced`; `model` is what all its iterations say. At most half of packing.work is spent.
  // Internal if a candidate's plan does not hold. Thread-safe.
  [[nodiscard]] virtual absl::StatusOr<TrialReport> Judge(const TracedRank& traced, const DeviceTrace& device,
                                                          const SteadyModel& model,
                                                          const PackingOptions& packing) const = 0;
  // What serving all that was traced by a finished plan of it comes to; its `choice` says nothing. `lent`: by
  // allocation, it lies in a graphs' pool, which holds it; empty: none does. Internal if the plan is malformed.
  // Thread-safe.
  [[nodiscard]] virtual absl::StatusOr<TrialOutcome> Serve(const TracedRank& traced, const DeviceTrace& device,
                                                           const DevicePlan& plan,
                                                           const std::vector<bool>& lent) const = 0;
};

}  // namespace stalloc::planner
