#include "planner/trial/slot_trial.h"

#include <algorithm>
#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "planner/analysis/held_bytes.h"
#include "planner/analysis/plan_builder.h"
#include "planner/trial/trial_run.h"
#include "proto/model/plan_shape.h"

namespace stalloc::planner {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kMostHeldOut = 2;
// What is searched for in a trial: which candidate is better, not the last thousandth of its height.
constexpr std::chrono::milliseconds kMostPackingTime{500};
constexpr int kPartOfPackingTime = 4;  // all trials together

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

Fold HoldOut(const DeviceTrace& device, const SteadyModel& model, std::uint32_t iteration) {
  Cycle cycle = model.cycle;
  cycle.typical[iteration] = false;
  return {CompareIterations(device, cycle, model.all_streams), ServedSegments(device, cycle, iteration)};
}

absl::StatusOr<TrialOutcome> Try(const TracedRank& traced, const DeviceTrace& device, const Fold& fold,
                                 const SlotChoice& choice, const PackingOptions& packing, Solver& solver) {
  const Clock::time_point start = Clock::now();
  const Timeline timeline = BuildTimeline(device, fold.model, choice);
  Plan plan;
  plan.devices.push_back(BuildDevicePlan(device, timeline, SolveTimeline(timeline, packing, solver).packing));
  if (const Status shape = CheckPlanShape(plan); !shape.ok()) {
    return absl::InternalError(absl::StrCat("a plan on trial is malformed: ", shape.error()));
  }
  const TrialRun run = ServeTraced(traced, device, plan.devices.front(), fold.served);
  return TrialOutcome{.choice = choice,
                      .plan_bytes = plan.devices.front().arena_bytes,
                      .arena_bytes = run.arena_bytes,
                      .upstream_bytes = HeldByUpstream(run.upstream_peak_bytes),
                      .peak_live_bytes = run.peak_live_bytes,
                      .requests = run.requests,
                      .slot_hits = run.slot_hits,
                      .dynamic_hits = run.dynamic_hits,
                      .seconds = std::chrono::duration<double>(Clock::now() - start).count()};
}

// The worse of two outcomes of one candidate.
bool IsWorse(const TrialOutcome& left, const TrialOutcome& right) { return left.efficiency() < right.efficiency(); }

// A better candidate: `left` is taken instead of `right`.
bool IsBetter(const TrialOutcome& left, const TrialOutcome& right) {
  if (left.held_bytes() != right.held_bytes()) {
    return left.held_bytes() < right.held_bytes();
  }
  return left.slot_hits > right.slot_hits;
}

}  // namespace

std::vector<std::uint32_t> IterationsToHoldOut(const Cycle& cycle) {
  std::vector<std::uint32_t> compared;  // the template stays in any case
  for (std::uint32_t i = cycle.complete; i-- > cycle.warmup + cycle.period;) {
    if (cycle.typical[i]) compared.push_back(i);
  }
  // Each script of the period needs another iteration to be compared with.
  const std::size_t spare = compared.size() > cycle.period ? compared.size() - cycle.period : 0;
  compared.resize(std::min(spare, kMostHeldOut));
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
    folds.push_back(HoldOut(device, model, iteration));
  }
  if (folds.empty()) {
    folds.push_back({model, ServedSegments(device, model.cycle, std::nullopt)});
  }
  PackingOptions options = packing;
  const auto trials = static_cast<int>(folds.size() * choices_.size());
  options.time = std::min<Clock::duration>(packing.time / (kPartOfPackingTime * trials), kMostPackingTime);
  options.on_progress = nullptr;
  const std::unique_ptr<Solver> solver = MakePortfolio();
  for (const SlotChoice& choice : choices_) {
    std::optional<TrialOutcome> worst;
    for (const Fold& fold : folds) {
      absl::StatusOr<TrialOutcome> outcome = Try(traced, device, fold, choice, options, *solver);
      if (!outcome.ok()) return outcome.status();
      if (!worst.has_value() || IsWorse(*outcome, *worst)) worst = *outcome;
    }
    report.candidates.push_back(*worst);
  }
  const auto taken = std::min_element(report.candidates.begin(), report.candidates.end(), IsBetter);
  report.taken = static_cast<std::size_t>(taken - report.candidates.begin());
  return report;
}

}  // namespace stalloc::planner
