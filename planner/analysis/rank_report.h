// What the planner has to say about one rank, as values. Rendering is planner/report's business. Bytes throughout.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "planner/analysis/graph_needs.h"
#include "planner/analysis/lend_figures.h"
#include "planner/analysis/memory_class.h"
#include "planner/analysis/replay.h"
#include "planner/analysis/segments.h"
#include "planner/analysis/slot_judge.h"
#include "planner/analysis/steady.h"
#include "planner/packing/finish/hand_overs.h"
#include "proto/model/plan.h"
#include "proto/model/trace.h"

namespace stalloc::planner {

// For live bytes at the peak, by what the block is to the plan.
enum class PeakClass : std::uint8_t {
  kSetUp,   // persistent, allocated before the first iteration: mostly weights
  kWarmup,  // persistent, allocated in an iteration: mostly optimizer state and gradient buffers
  kStatic,
  kDynamic,
  kOptional,
  kFenced,     // inside a fence: evaluation, checkpoint
  kUnmatched,  // in no script
  kCount,
};
[[nodiscard]] const char* PeakClassName(PeakClass peak_class);

inline constexpr std::size_t kPeakBlocks = 20;

struct PeakBlock {
  Bytes bytes = 0;
  MemoryClass memory_class = MemoryClass::kOther;
  std::uint32_t segment = 0;
  std::uint32_t ordinal = 0;  // in it
  std::uint32_t stream = 0;
  TensorRole role = TensorRole::kNone;  // of the named tensor inside
  std::string allocated_in;             // phase
  std::string freed_in;                 // empty: never
  std::uint64_t life_requests = 0;
};

// What one phase allocated of what is live at the peak.
struct PeakPhase {
  std::string phase;
  Bytes bytes = 0;
  std::uint64_t blocks = 0;
};

struct PeakReport {
  Bytes live_bytes = 0;
  std::uint32_t segment = 0;
  std::uint32_t ordinal = 0;  // last request of the segment before the peak
  bool fenced = false;
  std::string phase;
  std::array<Bytes, static_cast<std::size_t>(PeakClass::kCount)> by_class{};
  BytesByClass by_memory_class{};
  std::vector<PeakBlock> blocks;  // the kPeakBlocks largest
  std::vector<PeakPhase> phases;  // in the order of the run
};

struct PhaseReport {
  std::uint32_t segment = 0;
  std::string name;
  Bytes begin_live_bytes = 0;
  Bytes peak_live_bytes = 0;  // inside it
};

// What PyTorch's allocators would hold for the whole traced run; see simulated_allocator.h for what is left out.
struct SimulatedReport {
  Bytes native_bytes = 0;
  // Had the loop begun with the iteration that has the greatest peak; 0: it did.
  Bytes native_largest_first_bytes = 0;
  Bytes expandable_bytes = 0;
};

// How an iteration compares with the template.
enum class Stability : std::uint8_t {
  kSetUp,
  kWarmup,
  kTemplate,
  kSame,
  kSameThenMore,
  kDifferent,
  kBrokenOff,
  kNotCompared
};
[[nodiscard]] const char* StabilityName(Stability stability);

struct SegmentReport {
  std::int32_t index = -1;  // as the loop counts; -1: set-up
  std::uint64_t requests = 0;
  Bytes requested_bytes = 0;  // sum, rounded per request
  Bytes peak_live_bytes = 0;
  Stability stability = Stability::kNotCompared;
  std::optional<SegmentReplay> replay;
};

struct StreamReport {
  StreamInfo stream;
  std::uint64_t requests = 0;
  Bytes bytes = 0;
  std::uint64_t recorded = 0;  // blocks that were also used by another stream
  bool main = false;
};

// Requests of one period that the plan does or does not place.
struct UnplannedReport {
  std::uint64_t requests = 0;
  Bytes bytes = 0;
};

struct PackingReport {
  std::string solver;
  std::uint64_t blocks = 0;
  Bytes arena_bytes = 0;
  Bytes lower_bound_bytes = 0;  // proved
  double seconds = 0;
  std::uint32_t period = 1;
  std::uint32_t copies = 1;
  std::uint32_t turns = 1;  // above 1: what crosses iterations, and what uses its bytes, has a place for each turn
  std::uint64_t several_places = 0;  // requests of a period with a place for each turn
  Bytes one_place_bytes = 0;         // what one place for all turns takes, see SolvedPacking
  std::uint32_t warmup = 0;
  std::array<UnplannedReport, static_cast<std::size_t>(Unplanned::kCount)> cycle{};  // [kPlanned]: those with a place
  Predicted predicted;
  std::vector<StreamPair> hand_overs;  // between streams, each a wait; empty if one stream is planned
  double scatter = 0;                  // of the idle space, see packing/scatter.h
  Bytes held_bytes = 0;                // predicted, of the device: arena and upstream, in units of mapping
  Bytes lent_bytes = 0;                // of graphs' pools, that serve requests at a time
  std::uint64_t lent_requests = 0;     // so many in a cycle
  bool varies = false;                 // sizes or numbers of requests do
  std::optional<TrialReport> trial;    // then, if the work allowed was enough

  // Proved: no packing is lower.
  [[nodiscard]] bool optimal() const { return arena_bytes == lower_bound_bytes; }
  [[nodiscard]] double ratio() const {
    return lower_bound_bytes == 0 ? 1.0 : static_cast<double>(arena_bytes) / static_cast<double>(lower_bound_bytes);
  }
};

// What no plan can be better than; of an analysis that makes none.
struct ForecastReport {
  Bytes arena_bytes = 0;               // the greatest load of what would have slots
  Bytes held_bytes = 0;                // of the device, whatever serves the rest
  std::optional<LendFigures> lending;  // where graphs were captured
};

struct DeviceReport {
  DeviceIndex device = 0;
  PeakReport peak;
  std::vector<SegmentReport> segments;
  std::vector<PhaseReport> phases;
  std::vector<StreamReport> streams;
  SimulatedReport simulated;
  Bytes held_peak_bytes = 0;         // when traced; 0: not recorded
  std::optional<GraphNeeds> graphs;  // where some were captured
  std::optional<PackingReport> packing;
  std::optional<ForecastReport> forecast;  // only without `packing`
  std::vector<std::string> warnings;
  std::vector<std::string> notes;

  // Live bytes at the peak as a share of `held`; 0 if nothing is held.
  [[nodiscard]] double EfficiencyAt(Bytes held) const {
    return held == 0 ? 0.0 : static_cast<double>(peak.live_bytes) / static_cast<double>(held);
  }
  // For the traced run; 0 if not recorded, or too seldom to have seen the peak.
  [[nodiscard]] double traced_efficiency() const {
    return held_peak_bytes < peak.live_bytes ? 0.0 : EfficiencyAt(held_peak_bytes);
  }
  // The same of what the device needs with graphs; 0 where nothing was captured.
  [[nodiscard]] double traced_device_efficiency() const {
    if (!graphs.has_value() || traced_efficiency() == 0) return 0;
    return static_cast<double>(std::min(graphs->peak, held_peak_bytes)) / static_cast<double>(held_peak_bytes);
  }
};

struct RankReport {
  Fingerprint fingerprint;
  std::uint64_t events = 0;
  bool trace_complete = true;
  MarkCensus census;
  std::vector<DeviceReport> devices;
  std::vector<std::string> warnings;
  std::vector<std::string> notes;
  std::optional<std::uint32_t> same_as_rank;   // has the same packing problem, and so the same places
  std::optional<std::uint32_t> equal_to_rank;  // the lowest rank whose trace is equal; it alone was planned
  double seconds = 0;                          // analysis and planning, without reading the trace
};

}  // namespace stalloc::planner
