// TrialRun: serves traced segments of one device by a plan, with the engine that will serve the run to come, and counts
// what would be held. Nothing is mapped: the engine never touches what it hands out.
//
// Served are the segments that are requested, in order, with their marks and fences. Of the others only the iterations'
// begin marks are given, so that the engine counts iterations as the trace does, and the frees of blocks that served
// segments leave live. What a graph capture owns goes upstream, as at run time. Streams are taken to be done with
// everything at once.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/analysis/lifetimes.h"
#include "planner/analysis/traced_rank.h"
#include "proto/model/plan.h"

namespace stalloc::planner {

// Bytes.
struct TrialRun {
  Bytes arena_bytes = 0;          // mapped at the end: the arena only grows
  Bytes upstream_peak_bytes = 0;  // live upstream
  Bytes peak_live_bytes = 0;      // of all blocks
  std::uint64_t requests = 0;
  std::uint64_t slot_hits = 0;
  std::uint64_t dynamic_hits = 0;
  std::uint64_t times_moved = 0;  // requests that idle chunks were moved for
};

// `served`: by segment of `device`, which is one of `traced`. `lent`: by allocation, it is not requested, as a graphs'
// pool has space for it; empty: all are. REQUIRES: CheckPlanShape holds for `plan`, and it lends nothing.
[[nodiscard]] TrialRun ServeTraced(const TracedRank& traced, const DeviceTrace& device, const DevicePlan& plan,
                                   const std::vector<bool>& served, const std::vector<bool>& lent = {});

}  // namespace stalloc::planner
