// The planner of one device: analysis first, then, with a packing of its problem, the plan. Between the two anybody may
// solve the problem. Not thread-safe.
#pragma once

#include <optional>

#include "absl/status/status.h"
#include "planner/analysis/rank_report.h"
#include "planner/analysis/slot_judge.h"
#include "planner/analysis/solve_timeline.h"
#include "planner/analysis/timeline.h"
#include "planner/analysis/traced_rank.h"
#include "proto/model/plan.h"

namespace stalloc::planner {

class DevicePlanner {
 public:
  // `device` is one of `traced`, which must outlive this.
  DevicePlanner(const DeviceTrace& device, const TracedRank& traced) : device_(device), traced_(traced) {}

  // Fills report(). FailedPrecondition if the trace cannot be planned; the report is there all the same.
  // `all_streams`: see CompareIterations. `observed` (may be null; outlives this) widens what was traced. `running`:
  // see RankPlannerOptions.
  [[nodiscard]] absl::Status Analyse(bool all_streams, const ObservedDevice* observed, bool running = false);

  // REQUIRES for what follows: Analyse() was fine.
  // Sets up timeline(), with the problem to solve. Where sizes or numbers of requests vary, `judge` (may be null) has
  // the last word on `choice`. Errors as SlotJudge::Judge.
  [[nodiscard]] absl::Status LayOut(SlotChoice choice, const SlotJudge* judge, const PackingOptions& packing);
  [[nodiscard]] const Timeline& timeline() const { return timeline_; }
  [[nodiscard]] SolvedPacking Solve(const PackingOptions& options, Solver& solver) const;
  // Instead of LayOut() and Finish(): only the report's forecast.
  void Forecast(const SlotChoice& choice);
  // Checks the packing, and the plan against the trace; fills plan(), completes report(). Internal if they do not hold.
  // `judge` (may be null) is asked what upstream will hold, where the replay leaves something to it.
  [[nodiscard]] absl::Status Finish(const SolvedPacking& solved, const SlotJudge* judge);

  [[nodiscard]] DeviceIndex device() const { return device_.device; }
  [[nodiscard]] DeviceReport& report() { return report_; }
  [[nodiscard]] DevicePlan& plan() { return plan_; }

 private:
  [[nodiscard]] absl::Status Predict(const Replay& replay, Bytes lower_bound, const SlotJudge* judge);
  void ReportPacking(const SolvedPacking& solved, const Replay& replay);

  const DeviceTrace& device_;
  const TracedRank& traced_;
  SteadyModel model_;
  std::optional<TrialReport> trial_;
  SlotChoice choice_;
  Timeline timeline_;
  DeviceReport report_;
  DevicePlan plan_;
  Bytes held_bytes_ = 0;  // predicted, of the device
};

}  // namespace stalloc::planner
