// The planner of one rank: trace in, plan and report out. The composition root of the analysis; pure but for the clock.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/analysis/rank_report.h"
#include "planner/packing/portfolio.h"
#include "planner/packing/solver.h"
#include "proto/model/plan.h"
#include "proto/model/trace.h"

namespace stalloc::planner {

struct RankPlannerOptions {
  bool plan = true;          // false: analysis only
  bool all_streams = false;  // see CompareIterations
  SolveOptions solve;        // deadline and lower_bound are set per device
  std::chrono::steady_clock::duration packing_time = kDefaultPackingTime;  // per device
  std::string planner_version;
};

struct RankResult {
  RankReport report;
  std::optional<Plan> plan;  // absent if not asked for
  absl::Status plan_status;  // why there is none although it was asked for; the report is there all the same
};

// Every plan that this returns has passed CheckPacking, CheckPlanShape and ReplayTrace.
// InvalidArgument for a trace that contradicts itself or has no allocation.
[[nodiscard]] absl::StatusOr<RankResult> PlanRank(const Trace& trace, const RankPlannerOptions& options,
                                                  Solver& solver);

// The independent checks of a plan against a trace: fingerprint, shape, and ReplayTrace for every device.
[[nodiscard]] absl::StatusOr<std::vector<Replay>> CheckPlanAgainstTrace(const Plan& plan, const Trace& trace);

}  // namespace stalloc::planner
