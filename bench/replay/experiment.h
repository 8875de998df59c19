// One experiment: a plan from some iterations of a recording, another iteration served on it, and what PyTorch's own
// allocators would hold for the same run.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/replay/edits.h"
#include "bench/replay/recording.h"
#include "bench/replay/replayer.h"
#include "bench/replay/runs.h"
#include "planner/packing/portfolio.h"
#include "proto/model/plan.h"

namespace stalloc::bench {

struct ExperimentOptions {
  std::vector<std::size_t> planned = {0, 1, 2};  // iterations, in this order
  std::vector<std::size_t> served = {3};         // one after the other
  MarkStyle marks = MarkStyle::kRecorded;
  double edited_share = 0;  // of each served iteration's requests: dropped, and as many inserted
  std::uint64_t seed = 1;   // of the edits and of the packing
  int threads = 2;          // of the packing
  planner::Work packing_work = planner::kDefaultPackingWork;
  bool dynamic = true;    // what has no slot is served from the arena, too
  std::uint64_t lag = 0;  // of the device after its host, in requests
  double card = 0;        // of the peak of live bytes; 0: as large as it takes
  double late_share = 0;  // of each served iteration's frees: come later, by up to so many requests
  std::uint32_t late_by = 64;
  Rules rules = {};   // that the engine has
  bool times = true;  // measure the time of requests, too
  // Auto: the run traces the planned iterations itself, goes on without a plan through `awaited`, and takes its plan up
  // before the served ones.
  bool takes_plan = false;
  std::vector<std::size_t> awaited = {};
};

struct Experiment {
  std::string name;
  std::vector<std::size_t> planned;
  std::vector<std::size_t> served;
  Bytes plan_bytes = 0;               // the arena that was planned
  std::vector<std::size_t> warmup{};  // iterations that ran before the served ones
  double plan_seconds = 0;            // analysis, packing and checks
  Replayed replayed = {};
  std::array<PairTimes, kServedKinds> times{};
  Bytes native_bytes = 0;  // what each of PyTorch's allocators would hold for the same run
  Bytes expandable_bytes = 0;
  std::vector<IterationPeaks> expandable_iterations{};  // of the served ones
};

// The plan of a run, as traced. FailedPrecondition: nothing to plan.
[[nodiscard]] absl::StatusOr<DevicePlan> PlanOf(const ComposedRun& traced, const ExperimentOptions& options);

// The plan is made from set-up and planned iterations. What is served is the set-up, the plan's warm-up iterations and
// the served iterations, as a run of its own. OutOfRange: no such iteration. FailedPrecondition: nothing to plan.
[[nodiscard]] absl::StatusOr<Experiment> RunExperiment(const Recording& recording, const ExperimentOptions& options);

// `options` once for each order of the iterations after the first planned one, the served one among them: every choice
// of who is planned from and who is served. InvalidArgument: more than 120 orders, or several served iterations.
[[nodiscard]] absl::StatusOr<std::vector<Experiment>> RunAllOrders(const Recording& recording,
                                                                   const ExperimentOptions& options);

struct Spread {
  double mean = 0;
  double worst = 0;
};
// Of held / live. REQUIRES: not empty.
[[nodiscard]] Spread RatioSpread(const std::vector<Experiment>& experiments);

}  // namespace stalloc::bench
