// Replays a run through the real DeviceRuntime in Alloc mode, or as one that takes its plan up on the way (Auto): host
// driver, upstream as in expandable_upstream.h. No byte of a block is touched, so that tens of GiB cost no memory (the
// replay fails if they did).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "allocator/engine/plan_engine.h"
#include "bench/replay/driver_calls.h"
#include "bench/replay/runs.h"
#include "proto/model/plan.h"

namespace stalloc::bench {

enum class ServedBy : std::uint8_t { kPlanned, kDynamic, kUpstream, kCount };
[[nodiscard]] const char* ServedByName(ServedBy kind);
inline constexpr std::size_t kServedKinds = static_cast<std::size_t>(ServedBy::kCount);
inline constexpr std::size_t kMissReasons = static_cast<std::size_t>(MissReason::kCount);

// The arena became larger.
struct Growth {
  std::uint32_t request = 0;  // of the served iterations, that made it
  Bytes requested = 0;
  Bytes bytes = 0;        // by so much
  Bytes arena_bytes = 0;  // afterwards
  Bytes live_bytes = 0;   // of the run, with this request
};

struct IterationPeaks {
  Bytes live_bytes = 0;
  Bytes held_bytes = 0;

  [[nodiscard]] double efficiency() const {
    return held_bytes == 0 ? 1 : static_cast<double>(live_bytes) / static_cast<double>(held_bytes);
  }
};

// The requests to the runtime in a time, and their cost.
struct Activity {
  std::array<std::uint64_t, kServedKinds> requests{};
  std::array<std::uint64_t, kMissReasons> misses{};
  DriverCallCounts driver_calls{};
  std::uint64_t moves = 0;   // requests that idle chunks of the arena were moved for
  Bytes moved_bytes = 0;     // of those chunks
  Bytes growth_bytes = 0;    // by which the arena became larger
  Bytes upstream_bytes = 0;  // likewise, what upstream holds
};

// Of Auto, from the moment on in which the plan is taken up.
struct SincePlan {
  IterationPeaks peaks;
  // What made up the peak of held bytes. First: of the arena of weights and state.
  Bytes first_arena_bytes = 0;
  Bytes first_arena_live_bytes = 0;
  Bytes plan_arena_bytes = 0;
  Bytes plan_arena_live_bytes = 0;
  Bytes upstream_bytes = 0;
  Bytes upstream_live_bytes = 0;
};

// Peaks are of the whole run; counts, and growth, of the iterations that are served.
struct Replayed {
  Bytes peak_live_bytes = 0;
  Bytes peak_held_bytes = 0;                 // arena mapped + upstream held
  std::vector<IterationPeaks> iterations{};  // served ones; held includes what earlier ones left mapped or cached
  std::optional<SincePlan> since_plan{};     // Auto
  std::vector<Activity> activities{};        // likewise
  Bytes arena_bytes = 0;                     // mapped in the end
  Bytes upstream_bytes = 0;                  // held in the end
  std::vector<Growth> growths{};
  std::uint64_t moves = 0;  // requests that idle chunks of the arena were moved for
  Bytes moved_bytes = 0;    // of those chunks
  std::uint64_t stream_events = 0;
  std::uint64_t stream_waits = 0;  // of one stream for another
  std::array<std::uint64_t, kServedKinds> requests{};
  std::array<Bytes, kServedKinds> bytes{};  // sums of rounded sizes
  std::array<std::uint64_t, kMissReasons> misses{};
  bool gave_up = false;               // the runtime found that the run does not resemble its plan
  std::vector<ServedBy> served_by{};  // each block of the run

  // Held / live: 1 is the least there can be.
  [[nodiscard]] double ratio() const {
    return peak_live_bytes == 0 ? 1 : static_cast<double>(peak_held_bytes) / static_cast<double>(peak_live_bytes);
  }
  [[nodiscard]] double efficiency() const { return 1 / ratio(); }
  [[nodiscard]] Bytes growth_bytes() const;
};

struct Serving {
  std::size_t first = 0;    // the run's iterations from here on are those that are served
  bool dynamic = true;      // what has no slot is served from the arena, too (STALLOC_DYNAMIC)
  std::uint64_t lag = 0;    // of the device, in requests (lagging_device.h)
  double card = 0;          // bytes that may be held, of the run's peak of live bytes; 0: as many as it takes
  bool takes_plan = false;  // Auto: there is no plan before the iterations that are served
  Rules rules = {};
};

// Internal: a block overlaps a live one, the runtime counts
// other live bytes than the run has, it serves no plan at all, or memory was touched.
[[nodiscard]] absl::StatusOr<Replayed> ReplayRun(const ComposedRun& run, const DevicePlan& plan,
                                                 const Serving& serving);

// The upstream alone, without any plan: what it holds at its peak in each iteration from `first` on.
[[nodiscard]] std::vector<IterationPeaks> ReplayUpstream(const ComposedRun& run, std::size_t first);

// Nanoseconds of a request and its free together.
struct PairTimes {
  std::uint64_t pairs = 0;
  double median_ns = 0;
  double p99_ns = 0;
  double mean_ns = 0;
};

// The same once more with a clock around each call, whose own time is taken off. Blocks of the served iterations that
// are freed, by who served them. What upstream takes is the model's time, not a device allocator's.
[[nodiscard]] absl::StatusOr<std::array<PairTimes, kServedKinds>> TimeRun(const ComposedRun& run,
                                                                          const DevicePlan& plan,
                                                                          const Serving& serving,
                                                                          const std::vector<ServedBy>& served_by);

}  // namespace stalloc::bench
