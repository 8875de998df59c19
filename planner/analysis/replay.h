// Replay: plays the traced run against a plan, and proves that the plan holds for it.
//
// Shares nothing with how the plan was made but the trace's segments and the alignment: lifetimes come from the trace's
// own events, places from the plan alone. Proved are, for the prologue and the first script of the cycle (whose
// requests must be the traced ones to the byte): no two planned blocks overlap while both are alive, and none leaves
// the arena; none that lies in a graphs' pool is alive when a launch needs its bytes, or comes while they wait for one.
// In later iterations a request whose place is still taken counts as a miss, as it does at run time. The same walk
// predicts hits and what upstream has to hold.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/analysis/alignment.h"
#include "planner/analysis/lendable_pools.h"
#include "planner/analysis/lifetimes.h"
#include "proto/model/plan.h"

namespace stalloc::planner {

struct SegmentReplay {
  std::uint64_t requests = 0;
  std::uint64_t hits = 0;             // served from the arena
  std::uint64_t occupied = 0;         // expected, but the place was still taken
  std::uint64_t unplanned = 0;        // expected, and left to upstream by the plan
  std::uint64_t unmatched = 0;        // not what the plan expects here: other size, or not expected at all
  std::uint64_t hits_over_block = 0;  // hits and requests of more than one alignment unit
  std::uint64_t requests_over_block = 0;
};

struct Replay {
  std::vector<SegmentReplay> segments;  // parallel to DeviceTrace::segments
  Bytes peak_live_bytes = 0;            // of the whole run, fences included
  Bytes planned_peak_bytes = 0;         // live in the arena
  Bytes lent_peak_bytes = 0;            // live in graphs' pools
  Bytes unlent_peak_bytes = 0;          // of what is not
  Bytes upstream_peak_bytes = 0;        // live elsewhere
  std::uint64_t moved = 0;              // lent blocks in a launch's way: the run moves them
  std::vector<bool> lent;               // by allocation: in a graphs' pool; empty where the plan lends nothing
};

// InvalidArgument naming script, entry and values where the plan does not hold. `known`: by segment, the alignment of
// its script with all of it; what is null, or missing, is aligned here. `pools`: of the trace; null: no launch is
// looked at.
[[nodiscard]] absl::StatusOr<Replay> ReplayTrace(const DeviceTrace& device, const DevicePlan& plan,
                                                 std::span<const Alignment* const> known = {},
                                                 const LendablePools* pools = nullptr);

// The script that traced segment `segment` runs by.
[[nodiscard]] const Script& ScriptOfSegment(const DevicePlan& plan, std::size_t segment);

}  // namespace stalloc::planner
