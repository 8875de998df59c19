#include "bench/replay/experiment.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "bench/replay/edits.h"
#include "planner/analysis/rank_planner.h"
#include "planner/analysis/simulate_expandable.h"
#include "planner/trial/slot_trial.h"

namespace stalloc::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kMostReordered = 5;

absl::Status CheckIterations(const Recording& recording, const ExperimentOptions& options) {
  if (options.planned.empty()) return absl::InvalidArgumentError("no iteration to plan from");
  if (options.served.empty()) return absl::InvalidArgumentError("no iteration to serve");
  std::vector<std::size_t> named = options.planned;
  named.insert(named.end(), options.served.begin(), options.served.end());
  named.insert(named.end(), options.awaited.begin(), options.awaited.end());
  for (const std::size_t iteration : named) {
    if (iteration < recording.iterations.size()) continue;
    return absl::OutOfRangeError(
        absl::StrCat(recording.name, ": no iteration ", iteration, ": it has 0 to ", recording.iterations.size() - 1));
  }
  return absl::OkStatus();
}

absl::Status SimulatePeers(const ComposedRun& run, MarkStyle marks, Experiment* experiment) {
  const absl::StatusOr<std::vector<planner::DeviceTrace>> devices = planner::BuildLifetimes(TraceOf(run, marks));
  if (!devices.ok()) return devices.status();
  planner::NativeSimulation native;
  planner::ExpandableSimulation expandable;
  experiment->native_bytes = planner::SimulateRun(devices->front(), native);
  experiment->expandable_bytes = planner::SimulateRun(devices->front(), expandable);
  return absl::OkStatus();
}

std::vector<const Piece*> Chosen(const Recording& recording, const std::vector<std::size_t>& numbers) {
  std::vector<const Piece*> pieces;
  for (const std::size_t number : numbers) pieces.push_back(&recording.iterations[number]);
  return pieces;
}

}  // namespace

absl::StatusOr<DevicePlan> PlanOf(const ComposedRun& traced, const ExperimentOptions& options) {
  planner::RankPlannerOptions planner_options;
  planner_options.packing.work = options.packing_work;
  planner_options.packing.solve.threads = options.threads;
  planner_options.packing.solve.seed = options.seed;
  const planner::SlotTrial trial;
  planner_options.slot_judge = &trial;
  planner_options.running = options.takes_plan;
  const std::unique_ptr<planner::Solver> solver = planner::MakePortfolio();
  absl::StatusOr<planner::RankResult> result =
      planner::PlanRank(TraceOf(traced, options.marks), planner_options, *solver);
  if (!result.ok()) return result.status();
  if (!result->plan.has_value()) return result->plan_status;
  return std::move(result->plan->devices.front());
}

absl::StatusOr<Experiment> RunExperiment(const Recording& recording, const ExperimentOptions& options) {
  if (absl::Status status = CheckIterations(recording, options); !status.ok()) return status;
  Experiment experiment{.name = recording.name, .planned = options.planned, .served = options.served};

  const ComposedRun traced = ComposeRun(recording, Chosen(recording, options.planned), options.marks);
  const Clock::time_point start = Clock::now();
  const absl::StatusOr<DevicePlan> plan = PlanOf(traced, options);
  if (!plan.ok()) return plan.status();
  experiment.plan_seconds = std::chrono::duration<double>(Clock::now() - start).count();
  experiment.plan_bytes = plan->arena_bytes;
  // The first script is the set-up's, with what has no mark of its own.
  experiment.warmup = options.planned;
  experiment.warmup.insert(experiment.warmup.end(), options.awaited.begin(), options.awaited.end());
  if (!options.takes_plan) experiment.warmup.resize(plan->prologue.size() - 1 + traced.unmarked);

  std::vector<Piece> served;
  for (const std::size_t iteration : options.served) {
    served.push_back(recording.iterations[iteration]);
    const std::uint64_t seed = options.seed + served.size() - 1;
    InsertAndDrop(&served.back(), options.edited_share, seed);
    DelayFrees(&served.back(), options.late_share, options.late_by, seed);
  }
  std::vector<const Piece*> pieces = Chosen(recording, experiment.warmup);
  for (const Piece& piece : served) pieces.push_back(&piece);
  const ComposedRun run = ComposeRun(recording, pieces, options.marks);
  const Serving serving{.first = experiment.warmup.size(),
                        .dynamic = options.dynamic,
                        .lag = options.lag,
                        .card = options.card,
                        .takes_plan = options.takes_plan,
                        .rules = options.rules};
  absl::StatusOr<Replayed> replayed = ReplayRun(run, *plan, serving);
  if (!replayed.ok()) return replayed.status();
  experiment.replayed = *std::move(replayed);
  if (options.times && !options.takes_plan) {
    const auto times = TimeRun(run, *plan, serving, experiment.replayed.served_by);
    if (!times.ok()) return times.status();
    experiment.times = *times;
  }
  experiment.expandable_iterations = ReplayUpstream(run, experiment.warmup.size());
  if (absl::Status status = SimulatePeers(run, options.marks, &experiment); !status.ok()) return status;
  return experiment;
}

absl::StatusOr<std::vector<Experiment>> RunAllOrders(const Recording& recording, const ExperimentOptions& options) {
  if (absl::Status status = CheckIterations(recording, options); !status.ok()) return status;
  if (options.served.size() > 1) return absl::InvalidArgumentError("all orders: expected one served iteration");
  std::vector<std::size_t> reordered(options.planned.begin() + 1, options.planned.end());
  reordered.push_back(options.served.front());
  if (reordered.size() > kMostReordered) {
    return absl::InvalidArgumentError(absl::StrCat("all orders of ", reordered.size(),
                                                   " iterations are too many: expected at most ", kMostReordered));
  }
  std::sort(reordered.begin(), reordered.end());
  std::vector<Experiment> experiments;
  do {
    ExperimentOptions order = options;
    std::copy(reordered.begin(), reordered.end() - 1, order.planned.begin() + 1);
    order.served = {reordered.back()};
    absl::StatusOr<Experiment> experiment = RunExperiment(recording, order);
    if (!experiment.ok()) return experiment.status();
    experiments.push_back(*std::move(experiment));
  } while (std::next_permutation(reordered.begin(), reordered.end()));
  return experiments;
}

Spread RatioSpread(const std::vector<Experiment>& experiments) {
  Spread spread;
  for (const Experiment& experiment : experiments) {
    spread.mean += experiment.replayed.ratio() / static_cast<double>(experiments.size());
    spread.worst = std::max(spread.worst, experiment.replayed.ratio());
  }
  return spread;
}

}  // namespace stalloc::bench
