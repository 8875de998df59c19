#include "planner/trial/slot_trial.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "planner/analysis/held_bytes.h"
#include "planner/analysis/plan_builder.h"
#include "planner/analysis/refine.h"
#include "planner/analysis/turns.h"
#include "planner/trial/trial_run.h"
#include "proto/model/plan_shape.h"

namespace stalloc::planner {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kMostHeldOut = 2;
// Of one trial: which candidate is better shows long before the last ten-thousandth of its height is found.
constexpr Work kMostPackingWork = kWorkPerSecond;

// What one trial knows, and what it serves.
struct Fold {
  SteadyModel model;
  std::vector<bool> served;  // by segment
};

std::vector<bool> ServedSegments(const DeviceTrace& device, const Cycle& cycle, std::optional<std::uint32_t> held_out) {
  std::vector<bool> served(device.segments.size(), false);
  for (std::uint32_t segment = 0; segment <= cycle.complete; ++segment) {
    const std::uint32_t iteration = segment - 1;
    served[segment] =
        segment <= cycle.warmup || (held_out.has_value() ? iteration == *held_out || iteration + 1 == *held_out
                                                         : static_cast<bool>(cycle.typical[iteration]));
  }
  return served;
}

absl::StatusOr<Fold> HoldOut(const DeviceTrace& device, const SteadyModel& model, std::uint32_t iteration) {
  Cycle cycle = model.cycle;
  cycle.typical[iteration] = false;
  Fold fold{CompareIterations(device, cycle, model.all_streams), ServedSegments(device, cycle, iteration)};
  if (model.observed != nullptr) {
    Widened ignored;
    if (absl::Status status = Widen(device, *model.observed, &fold.model, &ignored); !status.ok()) return status;
  }
  return fold;
}

// What is the same for all candidates.
struct Bench {
  const TracedRank& traced;
  const DeviceTrace& device;
  const std::vector<Fold>& folds;
  const PackingOptions& packing;
  Solver& solver;
};

absl::StatusOr<TrialOutcome> ServeSegments(const TracedRank& traced, const DeviceTrace& device, DevicePlan device_plan,
                                           const std::vector<bool>& served) {
  Plan plan;
  plan.devices.push_back(std::move(device_plan));
  if (const Status shape = CheckPlanShape(plan); !shape.ok()) {
    return absl::InternalError(absl::StrCat("a plan on trial is malformed: ", shape.error()));
  }
  const TrialRun run = ServeTraced(traced, device, plan.devices.front(), served);
  return TrialOutcome{.choice = {},
                      .served = true,
                      .plan_bytes = plan.devices.front().arena_bytes,
                      .arena_bytes = run.arena_bytes,
                      .upstream_bytes = HeldByUpstream(run.upstream_peak_bytes),
                      .peak_live_bytes = run.peak_live_bytes,
                      .requests = run.requests,
                      .slot_hits = run.slot_hits,
                      .dynamic_hits = run.dynamic_hits,
                      .times_moved = run.times_moved};
}

absl::StatusOr<TrialOutcome> ServeFold(const Bench& bench, const Fold& fold, const SlotChoice& choice,
                                       Timeline timeline) {
  const auto build = [&](std::uint32_t turns) { return BuildTimeline(bench.device, fold.model, choice, turns); };
  SolvedPacking solved = SolveTimeline(timeline, MostCopies(fold.model), build, bench.packing, bench.solver);
  if (solved.turns > 1) {
    timeline = build(solved.turns);
    JoinTurns(&timeline, &solved.packing);
  }
  return ServeSegments(bench.traced, bench.device, BuildDevicePlan(bench.device, timeline, solved.packing),
                       fold.served);
}

// Gives up as soon as the candidate is known to hold more than `least_held`.
absl::StatusOr<TrialOutcome> Try(const Bench& bench, const SlotChoice& choice, Bytes least_held) {
  const Clock::time_point start = Clock::now();
  std::optional<TrialOutcome> worst;
  for (const Fold& fold : bench.folds) {
    Timeline timeline = BuildTimeline(bench.device, fold.model, choice);
    const Bytes bound = LoadBound(timeline.problem);
    if (RoundUp(bound, kMappingUnit) > least_held) {
      worst = TrialOutcome{.choice = choice, .plan_bytes = bound, .arena_bytes = RoundUp(bound, kMappingUnit)};
      break;
    }
    absl::StatusOr<TrialOutcome> outcome = ServeFold(bench, fold, choice, std::move(timeline));
    if (!outcome.ok()) return outcome.status();
    outcome->choice = choice;
    if (!worst.has_value() || outcome->held_bytes() > worst->held_bytes()) worst = *outcome;
  }
  worst->seconds = std::chrono::duration<double>(Clock::now() - start).count();
  return *worst;
}

// More than this share of what is live above it: iterations come in orders that no plan of one of them fits.
constexpr Bytes kFarAbove = 64;
bool IsFarAboveLive(const TrialOutcome& outcome) {
  return outcome.held_bytes() > outcome.peak_live_bytes + outcome.peak_live_bytes / kFarAbove;
}

// `left`, with slots for more of what varies, is taken instead of `right`. One or two iterations on trial are not much
// evidence, and what such slots hold no other request has while they wait: they must be better by this share.
constexpr Bytes kClearlyLess = 128;
bool IsBetter(const TrialOutcome& left, const TrialOutcome& right) {
  if (left.held_bytes() != right.held_bytes()) {
    return left.held_bytes() + left.held_bytes() / kClearlyLess < right.held_bytes();
  }
  if (left.times_moved != right.times_moved) return left.times_moved < right.times_moved;  // they cost time
  return left.slot_hits > right.slot_hits;
}

}  // namespace

std::vector<std::uint32_t> IterationsToHoldOut(const Cycle& cycle) {
  std::vector<std::uint32_t> compared;  // the template stays in any case
  for (std::uint32_t i = cycle.complete; i-- > cycle.warmup + cycle.period;) {
    if (cycle.typical[i]) compared.push_back(i);
  }
  // Each script of the period needs another iteration to be compared with; warm-up will do (CompareIterations).
  const std::size_t kept = std::min<std::size_t>(cycle.period, compared.size());
  const std::size_t spare = compared.size() - kept;
  compared.resize(spare == 0 && cycle.warmup > 0 ? std::min<std::size_t>(kept, 1) : std::min(spare, kMostHeldOut));
  return compared;
}

SlotTrial::SlotTrial(std::optional<double> headroom) {
  if (headroom.has_value()) {
    choices_ = {{SlotPolicy::kLargest, *headroom}};
  } else {
    choices_ = {{SlotPolicy::kStaticOnly}, {SlotPolicy::kTemplate}, {SlotPolicy::kLargest}};
  }
}

absl::StatusOr<TrialReport> SlotTrial::Judge(const TracedRank& traced, const DeviceTrace& device,
                                             const SteadyModel& model, const PackingOptions& packing) const {
  TrialReport report;
  report.held_out = IterationsToHoldOut(model.cycle);
  std::vector<Fold> folds;
  for (const std::uint32_t iteration : report.held_out) {
    absl::StatusOr<Fold> fold = HoldOut(device, model, iteration);
    if (!fold.ok()) return fold.status();
    folds.push_back(*std::move(fold));
  }
  if (std::ranges::none_of(folds, [](const Fold& fold) { return HasVarying(fold.model); })) {
    report.held_out.clear();
    folds.assign(1, {model, ServedSegments(device, model.cycle, std::nullopt)});
  }
  PackingOptions options = packing;
  options.work = std::min(packing.work / (folds.size() * choices_.size()), kMostPackingWork);
  options.on_progress = nullptr;
  const std::unique_ptr<Solver> solver = MakePortfolio();
  const Bench bench{traced, device, folds, options, *solver};
  const auto try_one = [&](const SlotChoice& choice) {
    const Bytes least =
        report.candidates.empty() ? std::numeric_limits<Bytes>::max() : report.candidates[report.taken].held_bytes();
    absl::StatusOr<TrialOutcome> outcome = Try(bench, choice, least);
    if (!outcome.ok()) return outcome.status();
    report.candidates.push_back(*outcome);
    const std::size_t last = report.candidates.size() - 1;
    if (IsBetter(report.candidates[last], report.candidates[report.taken])) report.taken = last;
    return absl::OkStatus();
  };
  for (const SlotChoice& choice : choices_) {
    if (absl::Status status = try_one(choice); !status.ok()) return status;
  }
  if (choices_.size() > 1 && IsFarAboveLive(report.candidates[report.taken])) {
    if (absl::Status status = try_one({SlotPolicy::kWhatStays}); !status.ok()) return status;
  }
  return report;
}

absl::StatusOr<TrialOutcome> SlotTrial::Serve(const TracedRank& traced, const DeviceTrace& device,
                                              const DevicePlan& plan) const {
  return ServeSegments(traced, device, plan, std::vector<bool>(device.segments.size(), true));
}

}  // namespace stalloc::planner
