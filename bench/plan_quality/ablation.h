// The portfolio with each of its passes left out, one at a time (planner/packing/problem/passes.h): packings of the
// instances, and plans of whole traces, which finish passes work on.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bench/plan_quality/measurement.h"
#include "bench/plan_quality/output.h"
#include "planner/packing/problem/passes.h"
#include "proto/model/trace.h"

namespace stalloc::planner {

// The portfolio without these passes.
struct Variant {
  std::string name;  // of the passes, joined by +; empty: nothing is left out
  PackingPasses passes;
  // No search is left out: packings are as high as ever.
  [[nodiscard]] bool IsOfFinish() const;
};

// All of them and one for each item: passes joined by +; "all" is each pass alone. InvalidArgument lists what there is.
[[nodiscard]] absl::StatusOr<std::vector<Variant>> VariantsOf(const std::vector<std::string>& items);

struct BenchTrace {
  std::string name;
  std::function<absl::StatusOr<Trace>()> load;
};

// Recorded runs below `root` and synthetic ones of 25 k blocks.
[[nodiscard]] std::vector<BenchTrace> AblationTraces(const std::string& root);

struct AblationRow {
  std::string instance;  // plan/NAME: a plan of the trace
  std::string without;
  Bytes load_bound = 0;
  Bytes height = 0;
  double seconds = 0;  // of processors
  // Of a plan alone.
  bool planned = false;
  Bytes held = 0;  // predicted, of the device
  Bytes live = 0;  // most at once
  std::uint64_t hand_overs = 0;
  double scatter = 0;
};

[[nodiscard]] AblationRow RowOf(const Measurement& measurement, const Variant& variant);
// A whole plan of the trace, the trial of slots included.
[[nodiscard]] absl::StatusOr<AblationRow> MeasurePlan(const std::string& instance, const Trace& trace,
                                                      const Variant& variant, const MeasureOptions& options);

// On one line, for ablation.py, which makes a table of it.
[[nodiscard]] std::string AblationJson(const std::vector<AblationRow>& rows, const RunFacts& facts,
                                       double time_limit_s);

}  // namespace stalloc::planner
