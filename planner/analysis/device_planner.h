// The planner of one device: analysis first, then, with a packing of its problem, the plan, and what the report says of
// both at last. Between the first two anybody may solve the problem. Not thread-safe.
#pragma once

#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "planner/analysis/lendable_pools.h"
#include "planner/analysis/pool_schedule.h"
#include "planner/analysis/rank_report.h"
#include "planner/analysis/simulated_allocator.h"
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

  // FailedPrecondition if the trace cannot be planned. `all_streams`: see CompareIterations. `observed` (may be null;
  // outlives this) widens what was traced. `running`: see RankPlannerOptions.
  [[nodiscard]] absl::Status Analyse(bool all_streams, const ObservedDevice* observed, bool running = false);

  // REQUIRES for what follows: Analyse() was fine.
  // Sets up timeline(), with the problem to solve. Where sizes or numbers of requests vary, `judge` (may be null) has
  // the last word on `choice`. `lend_graphs`: graphs' pools serve requests between launches. Errors as
  // SlotJudge::Judge.
  [[nodiscard]] absl::Status LayOut(SlotChoice choice, const SlotJudge* judge, const PackingOptions& packing,
                                    bool lend_graphs = true);
  [[nodiscard]] const Timeline& timeline() const { return timeline_; }
  // Of options.work, what LayOut() has left of it.
  [[nodiscard]] SolvedPacking Solve(PackingOptions options, Solver& solver) const;
  [[nodiscard]] Work spent() const { return spent_; }
  // Instead of LayOut() and Finish(): only the report's forecast.
  void Forecast(const SlotChoice& choice);
  // Checks the packing, and the plan against the trace; fills plan(). Internal if they do not hold. `judge` (may be
  // null) says what upstream will hold, where the replay leaves something to it; not for a run that goes on, whose
  // plan is waited for.
  [[nodiscard]] absl::Status Finish(const SolvedPacking& solved, const SlotJudge* judge);

  // Whatever came before, also where it failed: completes report().
  void Describe();

  [[nodiscard]] DeviceIndex device() const { return device_.device; }
  [[nodiscard]] DeviceReport& report() { return report_; }
  [[nodiscard]] DevicePlan& plan() { return plan_; }

 private:
  // What the report has of a plan that was made.
  struct Finished {
    SolvedPacking solved;
    Packing packing;  // of timeline_
    Replay replay;
    Bytes held_bytes = 0;  // predicted, of the device
  };

  void TakePools();
  [[nodiscard]] SlotChoice ChoiceByLoad(SlotChoice choice) const;
  [[nodiscard]] absl::StatusOr<TrialOutcome> Predict(const Replay& replay, const SlotJudge* judge) const;
  [[nodiscard]] TrialOutcome PredictRunning(const Replay& replay) const;
  void DescribePacking(const Finished& finished);
  // Events: caches are emptied before each.
  [[nodiscard]] std::vector<std::uint64_t> CaptureBegins() const;
  [[nodiscard]] std::optional<Rehearsal> LargestFirst() const;
  [[nodiscard]] Bytes ExpandableBytes() const;
  // Predicted, of the device.
  [[nodiscard]] Bytes HeldOf(const TrialOutcome& outcome) const;

  const DeviceTrace& device_;
  const TracedRank& traced_;
  std::optional<SteadyModel> model_;  // once it was analysed
  std::optional<TrialReport> trial_;
  Work spent_ = 0;  // on the trial
  LendablePools lendable_;
  std::unique_ptr<const PoolSchedule> schedule_;  // of the model, which knows it; null: nothing may be lent
  SlotChoice choice_;
  Timeline timeline_;
  DeviceReport report_;
  DevicePlan plan_;
  std::optional<Finished> finished_;
};

}  // namespace stalloc::planner
