// Replays a traced run with captured graphs through the real DeviceRuntime in Alloc mode, from its first event to its
// last: eager requests by the plan, captured ones in pools that lie as they did when traced, launches where they came.
// The last iterations may come several times, as the run goes on.
//
//   trace       set-up  | eager iterations | capture | launch, evaluation | launch |
//   replayed    once, in the trace's order ............ | these again, so many times |
//
// Host driver, as in replayer.h: no byte is touched. Pure but for the host's address space.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "allocator/runtime/device_runtime.h"
#include "proto/model/plan.h"
#include "proto/model/trace.h"

namespace stalloc::bench {

struct GraphServing {
  Bytes keep_free = FreeMemory::kDefaultKeep;  // more than the device has: a full card
  std::uint32_t last = 0;                      // so many iterations, the last ones of the trace
  std::uint32_t times = 0;                     // come so many more times; REQUIRES: they free what they request
};

struct GraphRun {
  struct Held {
    Bytes arena = 0;
    Bytes upstream = 0;
    Bytes pools = 0;
    [[nodiscard]] Bytes sum() const { return arena + upstream + pools; }
  };
  Held peak;                  // when most was held
  std::uint64_t refused = 0;  // launches
  RuntimeStats stats;         // of the whole run
};

// InvalidArgument: a captured request without an address, a graph that requests nothing, or more than one device.
[[nodiscard]] absl::StatusOr<GraphRun> ReplayGraphs(const Trace& trace, const DevicePlan& plan,
                                                    const GraphServing& serving);

}  // namespace stalloc::bench
