// Lifetimes: every allocation of one device with its place among the requests of its segment, and where it ends.
//
// Time is counted in requests of the same device outside of fences: a block that is freed between request k and request
// k + 1 of a segment ends at ordinal k + 1, for it can share bytes with request k + 1 and not with request k. Frees
// among each other need no order. Bytes are requested sizes rounded up to kBlockAlignment.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/analysis/segments.h"
#include "proto/model/plan.h"
#include "proto/model/trace.h"

namespace stalloc::planner {

inline constexpr std::uint32_t kNone = 0xffffffffu;
inline constexpr std::uint64_t kNever = ~std::uint64_t{0};

struct Allocation {
  std::uint64_t event = 0;  // index into Trace::events
  std::uint64_t free_event = kNever;
  Bytes requested = 0;
  Bytes bytes = 0;              // rounded up
  std::uint32_t stream = 0;     // ordinal
  std::uint32_t thread = 0;     // ordinal
  std::uint32_t flags = 0;      // AllocFlags
  bool foreign_stream = false;  // recorded on a stream other than its own
  bool fenced = false;          // allocated inside a fence
  bool outside = false;         // no part of a script: fenced, captured, or from a parallel region
  std::uint32_t segment = 0;
  std::uint32_t ordinal = kNone;       // among the requests of its segment; kNone if outside
  std::uint32_t free_segment = kNone;  // kNone: never freed
  std::uint32_t free_ordinal = 0;      // of the first request of free_segment after the free
  std::uint64_t tick = 0;              // allocations and frees of the device outside of fences before this one
  std::uint64_t free_tick = 0;

  [[nodiscard]] bool freed() const { return free_event != kNever; }
};

struct SegmentRequests {
  std::vector<std::uint32_t> allocations;  // indices into DeviceTrace::allocations, in order
  std::vector<Phase> phases;
};

struct DeviceTrace {
  DeviceIndex device = 0;
  std::vector<Allocation> allocations;    // in order of allocation
  std::vector<SegmentRequests> segments;  // parallel to Segmentation::segments
  std::vector<StreamInfo> streams;        // of this device
  Bytes held_peak_bytes = 0;              // what upstream held when traced; 0: not recorded

  [[nodiscard]] const Allocation& Request(std::uint32_t segment, std::uint32_t ordinal) const {
    return allocations[segments[segment].allocations[ordinal]];
  }
};

// One entry per device that has an allocation, ascending by device. InvalidArgument if an event names an allocation or
// mark that does not exist or is freed already.
[[nodiscard]] absl::StatusOr<std::vector<DeviceTrace>> BuildLifetimes(const Trace& trace,
                                                                      const Segmentation& segmentation);

// InvalidArgument if an event names a mark or allocation outside the trace; what the functions of this directory rely
// on.
[[nodiscard]] absl::Status CheckReferences(const Trace& trace);

}  // namespace stalloc::planner
