// Everything that a report draws of one rank, as JSON on one line. Bytes are numbers of bytes, times nanoseconds since
// the trace's first event. Tables are columns of equal length, so that the text stays small; its size does not grow
// with the trace.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "planner/analysis/rank_report.h"
#include "planner/facts/block_facts.h"
#include "proto/model/block_use.h"
#include "proto/model/plan.h"

namespace stalloc::planner {

// For the same program with another micro-batch.
struct OtherRun {
  const TracedRank* traced = nullptr;
  const TraceClock* clock = nullptr;
  double ratio = 1;  // its micro-batch over this run's; not 1
};

struct RunViewOptions {
  const Plan* plan = nullptr;  // of the rank; may be null
  std::uint32_t ranks = 0;     // to share state among, in alternatives; 0: those of the run
  std::optional<OtherRun> other;
  const std::vector<BlockUse>* uses = nullptr;  // of the trace; may be null
  bool every_block = false;                     // class, layer and tensor of each; grows with the trace
};

// {"rank": as RankJson, "classes": [...], "devices": [{"device", "worth", "roles", "layers", "phases", "timeline",
// "peak_timeline", "near_peak", "held", "peak", "top_blocks", "unused", "layer_table", "alternatives", "scaling",
// "fit", "growth", "iterations", "graph_pools", "plan", "blocks"}]}.
[[nodiscard]] std::string RunViewJson(const RankReport& report, const TracedRank& traced, const TraceClock& clock,
                                      const RunViewOptions& options);

}  // namespace stalloc::planner
