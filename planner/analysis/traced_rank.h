// The trace of one rank as the analysis keeps it: lifetimes and segments in place of events.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/analysis/lifetimes.h"
#include "planner/analysis/segments.h"
#include "proto/model/trace.h"

namespace stalloc::planner {

struct TracedRank {
  Trace head;  // all but its events, named tensors and inputs of layers
  std::uint64_t events = 0;
  Segmentation segmentation;
  std::vector<DeviceTrace> devices;  // those that have an allocation, ascending
};

// Ends the reading; `head.events` is dropped.
[[nodiscard]] TracedRank FinishReading(LifetimeBuilder lifetimes, Trace head);

// For a trace that is there as a whole. Errors as LifetimeBuilder::Take.
[[nodiscard]] absl::StatusOr<TracedRank> TakeTrace(const Trace& trace);

}  // namespace stalloc::planner
