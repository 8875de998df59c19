// The planner of one rank: trace in, plan and report out. The composition root of the analysis; pure but for the clock.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/analysis/device_planner.h"
#include "planner/analysis/problem_key.h"
#include "planner/analysis/rank_report.h"
#include "planner/analysis/traced_rank.h"
#include "planner/packing/search/solver.h"
#include "proto/model/observed.h"
#include "proto/model/plan.h"
#include "proto/model/trace.h"

namespace stalloc::planner {

struct RankPlannerOptions {
  bool plan = true;         // false: analysis only
  bool all_streams = true;  // see CompareIterations
  PackingOptions packing;   // for each device
  // The plan is for the traced run itself, which goes on: what it allocated before its cycle, and in fences, stays
  // where it is.
  bool running = false;
  bool lend_graphs = true;  // pools of captured graphs serve requests between launches
  SlotChoice slots;
  const SlotJudge* slot_judge = nullptr;  // overrules `slots`; may be null
  std::optional<Observed> observed;       // by runs in Alloc mode: widens what was traced
  std::string planner_version;
};

struct RankResult {
  RankReport report;
  std::optional<Plan> plan;  // absent if not requested
  absl::Status plan_status;  // why there is none although it was requested; the report is there all the same
};

// One per device that can be planned.
using RankPacking = std::vector<SolvedPacking>;

// In steps, so that ranks with equal problems can share a packing. Not thread-safe; Analyse() first.
class RankPlanner {
 public:
  RankPlanner(TracedRank traced, RankPlannerOptions options);
  RankPlanner(const RankPlanner&) = delete;
  RankPlanner& operator=(const RankPlanner&) = delete;

  // InvalidArgument for a trace without an allocation.
  [[nodiscard]] absl::Status Analyse();

  // False: nothing to solve, for it was not requested or is impossible; Finish({}) says why.
  [[nodiscard]] bool HasProblem() const;
  // For all devices together.
  [[nodiscard]] ProblemKey Key() const;
  [[nodiscard]] RankPacking Solve(Solver& solver) const;

  // `packing`: of this rank, or of one with the same key. Every plan that this makes has passed CheckPacking,
  // CheckPlanShape and ReplayTrace.
  [[nodiscard]] absl::Status MakePlan(const RankPacking& packing);
  // Absent if it was not requested, or is impossible: the result's plan_status says why.
  [[nodiscard]] const std::optional<Plan>& plan() const { return result_.plan; }
  // With the report, which takes longer than a run should wait for its plan; once. `packing` as MakePlan had it.
  [[nodiscard]] RankResult Finish(const RankPacking& packing);

 private:
  struct Device {
    DevicePlanner planner;
    bool has_problem = false;
  };
  [[nodiscard]] const ObservedDevice* ObservedOf(DeviceIndex device) const;
  [[nodiscard]] absl::Status FinishPlan(const RankPacking& packing);

  TracedRank traced_;
  RankPlannerOptions options_;
  std::vector<Device> devices_;
  RankResult result_;
  double seconds_ = 0;
};

// All steps.
[[nodiscard]] absl::StatusOr<RankResult> PlanRank(TracedRank traced, const RankPlannerOptions& options, Solver& solver);
[[nodiscard]] absl::StatusOr<RankResult> PlanRank(const Trace& trace, const RankPlannerOptions& options,
                                                  Solver& solver);

// The independent checks of a plan against a trace: fingerprint, shape, and ReplayTrace for every device.
[[nodiscard]] absl::StatusOr<std::vector<Replay>> CheckPlanAgainstTrace(const Plan& plan, const TracedRank& traced);
[[nodiscard]] absl::StatusOr<std::vector<Replay>> CheckPlanAgainstTrace(const Plan& plan, const Trace& trace);

}  // namespace stalloc::planner
