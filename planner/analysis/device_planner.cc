#include "planner/analysis/device_planner.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "planner/analysis/cycle.h"
#include "planner/analysis/graph_captures.h"
#include "planner/analysis/graph_needs.h"
#include "planner/analysis/held_bytes.h"
#include "planner/analysis/lend_figures.h"
#include "planner/analysis/peak.h"
#include "planner/analysis/plan_builder.h"
#include "planner/analysis/pool_choice.h"
#include "planner/analysis/refine.h"
#include "planner/analysis/simulate_expandable.h"
#include "planner/analysis/sweep.h"
#include "planner/analysis/turns.h"
#include "planner/packing/finish/hand_overs.h"
#include "planner/packing/finish/scatter.h"
#include "planner/packing/finish/state_space.h"
#include "planner/packing/problem/plan_check.h"

namespace stalloc::planner {
namespace {

// Figures of the space that a plan leaves, and of hand-overs between its streams. REQUIRES: the packing is the
// timeline's.
void ReportSpace(const Timeline& timeline, const Packing& packing, PackingReport* report) {
  if (MayNeedWaits(timeline.problem)) {
    const std::vector<HandOver> found = FindHandOvers(timeline.problem, packing.offsets, timeline.cycle());
    report->hand_overs = CountByStreams(timeline.problem, found);
  }
  report->scatter = ScatterMeter(timeline.problem, timeline.cycle()).Measure(packing.offsets, packing.height).share();
}

// Of what comes before this segment and what is outside of scripts, at most so much is live from then on.
Bytes PeakOutsideSlots(const DeviceTrace& device, std::uint32_t segment) {
  Bytes live = 0;
  Bytes peak = 0;
  Sweep sweep(device);
  for (SweepStep step; sweep.Next(&step);) {
    const Allocation& allocation = device.allocations[step.allocation];
    if (allocation.segment < segment || allocation.outside) {
      live = step.is_free ? live - allocation.bytes : live + allocation.bytes;
    } else {
      peak = std::max(peak, live);
    }
  }
  return peak;
}

Stability StabilityOf(const Cycle& cycle, const DeviceTrace& device, std::uint32_t segment) {
  if (segment == 0) return Stability::kSetUp;
  const std::uint32_t iteration = segment - 1;
  if (iteration < cycle.warmup) return Stability::kWarmup;
  if (iteration < cycle.warmup + cycle.period) return Stability::kTemplate;
  if (iteration >= cycle.complete) return Stability::kBrokenOff;
  const std::uint32_t model = cycle.warmup + cycle.ScriptOf(iteration) + 1;
  const std::vector<RequestKey> expected = MakeSequence(device, model).keys;
  const std::vector<RequestKey> found = MakeSequence(device, segment).keys;
  if (expected.size() > found.size() || !std::equal(expected.begin(), expected.end(), found.begin())) {
    return Stability::kDifferent;
  }
  return expected.size() == found.size() ? Stability::kSame : Stability::kSameThenMore;
}

}  // namespace

const char* StabilityName(Stability stability) {
  switch (stability) {
    case Stability::kSetUp:
      return "set-up";
    case Stability::kWarmup:
      return "warm-up";
    case Stability::kTemplate:
      return "template";
    case Stability::kSame:
      return "same";
    case Stability::kSameThenMore:
      return "same, then more";
    case Stability::kDifferent:
      return "different";
    case Stability::kBrokenOff:
      return "broken off";
    case Stability::kNotCompared:
      break;
  }
  return "not compared";
}

absl::Status DevicePlanner::Analyse(bool all_streams, const ObservedDevice* observed, bool running) {
  const absl::StatusOr<Cycle> cycle =
      FindCycle(device_, traced_.segmentation, traced_.head.complete,
                CapturingIterations(FindGraphCaptures(traced_, device_), traced_.segmentation));
  if (!cycle.ok()) return cycle.status();
  model_ = CompareIterations(device_, *cycle, all_streams);
  model_->running = running;
  report_.warnings = cycle->warnings;
  if (observed != nullptr) {
    Widened widened;
    if (absl::Status status = Widen(device_, *observed, &*model_, &widened); !status.ok()) {
      return status;
    }
    model_->observed = observed;
    report_.notes.push_back(absl::StrCat("refined by what later runs saw: ", widened.sizes,
                                         " requests of other sizes than traced, ", widened.lives, " of longer lives"));
  }
  return absl::OkStatus();
}

absl::Status DevicePlanner::LayOut(SlotChoice choice, const SlotJudge* judge, const PackingOptions& packing,
                                   bool lend_graphs) {
  model_->passes = packing.solve.passes;
  if (judge != nullptr && HasVarying(*model_)) {
    absl::StatusOr<TrialReport> trial = judge->Judge(traced_, device_, *model_, packing);
    if (!trial.ok()) return trial.status();
    spent_ = trial->work;
    if (trial->too_large) {
      choice = ChoiceByLoad(choice);
      report_.notes.emplace_back(
          "which slots suit what varies was not tried: an iteration has so many requests that it would take more than "
          "the time limit");
    } else if (!trial->candidates.empty()) {
      choice = trial->candidates[trial->taken].choice;
      trial_ = *std::move(trial);
    }
  }
  choice_ = choice;
  if (lend_graphs) TakePools();
  timeline_ = BuildTimeline(device_, *model_, choice);
  return absl::OkStatus();
}

void DevicePlanner::TakePools() {
  PoolChoice found = ChoosePools(traced_, device_, *model_, choice_);
  lendable_ = std::move(found.pools);
  if (found.schedule.empty()) return;
  schedule_ = std::make_unique<const PoolSchedule>(std::move(found.schedule));
  model_->pools = schedule_.get();
}

// Slots for all where they take hardly more than is live: they are quicker than a search for space. Else for nothing
// that varies, which then finds space in turns.
SlotChoice DevicePlanner::ChoiceByLoad(SlotChoice choice) const {
  constexpr Bytes kHardlyMore = 128;
  const Bytes live = PeakLiveBytes(device_);
  SteadyModel whole = *model_;
  whole.running = false;
  const SlotChoice largest{SlotPolicy::kLargest};
  return LoadBound(BuildTimeline(device_, whole, largest).problem) <= live + live / kHardlyMore ? largest : choice;
}

SolvedPacking DevicePlanner::Solve(PackingOptions options, Solver& solver) const {
  options.work -= std::min(options.work, spent_);
  const auto build = [&](std::uint32_t turns) { return BuildTimeline(device_, *model_, choice_, turns); };
  return SolveTimeline(timeline_, MostCopies(*model_), build, options, solver);
}

void DevicePlanner::Forecast(const SlotChoice& choice) {
  const Bytes arena_bytes = LoadBound(BuildTimeline(device_, *model_, choice).problem);
  report_.forecast = {arena_bytes, std::max(RoundUp(arena_bytes, kMappingUnit), PeakLiveBytes(device_)), {}};
  choice_ = choice;
}

absl::Status DevicePlanner::Finish(const SolvedPacking& solved, const SlotJudge* judge) {
  if (solved.turns > 1) timeline_ = BuildTimeline(device_, *model_, choice_, solved.turns);
  if (absl::Status status = CheckPacking(timeline_.problem, solved.packing); !status.ok()) {
    return absl::InternalError(absl::StrCat("the solver's packing is wrong: ", status.message()));
  }
  Packing packing = solved.packing;
  if (solved.turns > 1) JoinTurns(&timeline_, &packing);
  if (model_->passes.Have(PackingPass::kStateSpace)) {
    KeepStateSpace(timeline_.cycle(), timeline_.twins, &timeline_.problem, &packing);
  }
  if (absl::Status status = CheckPacking(timeline_.problem, packing); !status.ok()) {
    return absl::InternalError(absl::StrCat("the packing with space for state is wrong: ", status.message()));
  }
  plan_ = BuildDevicePlan(device_, timeline_, packing);
  absl::StatusOr<Replay> replay = ReplayTrace(device_, plan_, WholeAlignments(device_, *model_), &lendable_);
  if (!replay.ok()) {
    return absl::InternalError(absl::StrCat("the plan does not hold for its own trace: ", replay.status().message()));
  }
  const absl::StatusOr<TrialOutcome> outcome = model_->running ? PredictRunning(*replay) : Predict(*replay, judge);
  if (!outcome.ok()) return outcome.status();
  report_.simulated.expandable_bytes = ExpandableBytes();
  plan_.predicted.peak_live_bytes = replay->peak_live_bytes;
  plan_.predicted.planned_peak_bytes = replay->planned_peak_bytes;
  plan_.predicted.lower_bound_bytes = solved.lower_bound;
  plan_.predicted.upstream_peak_bytes = outcome->upstream_bytes;
  const Bytes held = HeldOf(*outcome);
  plan_.predicted.efficiency =
      held == 0 ? 0.0 : static_cast<double>(outcome->peak_live_bytes) / static_cast<double>(held);
  plan_.predicted.expandable_bytes = report_.simulated.expandable_bytes;
  finished_ = Finished{solved, std::move(packing), *std::move(replay), held};
  return absl::OkStatus();
}

std::vector<std::uint64_t> DevicePlanner::CaptureBegins() const {
  std::vector<std::uint64_t> begins;
  for (const GraphCapture& capture : FindGraphCaptures(traced_, device_).captures) begins.push_back(capture.begin);
  return begins;
}

Bytes DevicePlanner::ExpandableBytes() const {
  ExpandableSimulation expandable;
  return SimulateRun(device_, expandable, CaptureBegins());
}

// Before a graph's pool is filled the arena's idle memory goes back to the device: where the arena is at its height
// earlier than pools are there, they do not come on top of it.
Bytes DevicePlanner::HeldOf(const TrialOutcome& outcome) const {
  const GraphNeeds needs = model_->running ? GraphNeeds{} : FindGraphNeeds(traced_, device_);
  const Bytes arena_and_others = outcome.held_bytes() + timeline_.lending.own_bytes();
  if (needs.graphs.empty()) return arena_and_others;
  const LendFigures figures = FindLendFigures(traced_, device_, *model_, choice_, needs);
  const Bytes most = model_->pools != nullptr ? figures.held : figures.held_apart;
  return std::min(arena_and_others, std::max(RoundUp(most, kMappingUnit), outcome.peak_live_bytes));
}

// The replay serves from slots alone. What it leaves to upstream (what varies, evaluations, checkpoints) mostly finds
// space in the arena: then the traced run is served once more, as the run to come will be.
absl::StatusOr<TrialOutcome> DevicePlanner::Predict(const Replay& replay, const SlotJudge* judge) const {
  TrialOutcome outcome;
  outcome.arena_bytes = RoundUp(plan_.arena_bytes, kMappingUnit);
  outcome.upstream_bytes = HeldByUpstream(replay.upstream_peak_bytes);
  outcome.peak_live_bytes = replay.peak_live_bytes;
  if (judge != nullptr && outcome.upstream_bytes > 0) return judge->Serve(traced_, device_, plan_, replay.lent);
  return outcome;
}

// Without serving anything: as the trial said, or the plan and what it does not hold. Varying blocks find their
// space in the arena, or else is what the peak has above the plan.
TrialOutcome DevicePlanner::PredictRunning(const Replay& replay) const {
  if (trial_.has_value() && trial_->candidates[trial_->taken].served) return trial_->candidates[trial_->taken];
  TrialOutcome outcome;
  outcome.peak_live_bytes = replay.peak_live_bytes;
  outcome.upstream_bytes = HeldByUpstream(PeakOutsideSlots(device_, model_->cycle.warmup + 1));
  const Bytes outside = std::min(outcome.upstream_bytes, replay.unlent_peak_bytes);
  outcome.arena_bytes = RoundUp(std::max(plan_.arena_bytes, replay.unlent_peak_bytes - outside), kMappingUnit);
  return outcome;
}

void DevicePlanner::Describe() {
  const SteadyModel* const model = model_.has_value() ? &*model_ : nullptr;
  report_.device = device_.device;
  report_.held_peak_bytes = device_.held_peak_bytes;
  report_.segments = SummarizeSegments(device_, traced_.segmentation);
  report_.streams = SummarizeStreams(device_);
  const PhaseMap phases(traced_.segmentation, traced_.head.marks);
  report_.phases = SummarizePhases(device_, phases);
  const std::vector<std::string> notes = ClassNotes(phases);
  report_.notes.insert(report_.notes.begin(), notes.begin(), notes.end());
  NativeSimulation native;
  report_.simulated.native_bytes = SimulateRun(device_, native, CaptureBegins());
  if (const std::optional<Rehearsal> largest = LargestFirst(); largest.has_value()) {
    NativeSimulation rehearsed;
    report_.simulated.native_largest_first_bytes = SimulateRun(device_, rehearsed, CaptureBegins(), largest);
  }
  if (!finished_.has_value()) report_.simulated.expandable_bytes = ExpandableBytes();
  report_.peak = FindPeak(device_, model, phases);
  if (GraphNeeds needs = FindGraphNeeds(traced_, device_); !needs.graphs.empty()) report_.graphs = std::move(needs);
  if (report_.graphs.has_value() && report_.forecast.has_value()) {
    report_.forecast->lending = FindLendFigures(traced_, device_, *model_, choice_, *report_.graphs);
  }
  for (std::uint32_t i = 0; model != nullptr && i < report_.segments.size(); ++i) {
    report_.segments[i].stability = StabilityOf(model->cycle, device_, i);
  }
  if (finished_.has_value()) DescribePacking(*finished_);
}

// Nothing where the loop begins with it, or is no loop.
std::optional<Rehearsal> DevicePlanner::LargestFirst() const {
  const std::vector<Segment>& segments = traced_.segmentation.segments;
  if (segments.size() < 3) return std::nullopt;
  const auto largest = std::ranges::max_element(report_.segments.begin() + 1, report_.segments.end(), {},
                                                &SegmentReport::peak_live_bytes);
  const Segment& chosen = segments[static_cast<std::size_t>(largest - report_.segments.begin())];
  if (&chosen == &segments[1]) return std::nullopt;
  return Rehearsal{segments[1].begin_event, chosen.begin_event, chosen.end_event};
}

void DevicePlanner::DescribePacking(const Finished& finished) {
  const SolvedPacking& solved = finished.solved;
  PackingReport& packing = report_.packing.emplace();
  packing.solver = solved.solver;
  packing.blocks = timeline_.problem.blocks.size();
  packing.arena_bytes = plan_.arena_bytes;
  packing.lower_bound_bytes = solved.lower_bound;
  packing.seconds = solved.seconds;
  packing.period = model_->cycle.period;
  packing.copies = timeline_.copies;
  packing.turns = solved.turns;
  packing.several_places = CountOfSeveralPlaces(timeline_);
  packing.one_place_bytes = solved.one_place;
  packing.warmup = model_->cycle.warmup;
  packing.predicted = plan_.predicted;
  packing.held_bytes = finished.held_bytes;
  packing.lent_bytes = finished.replay.lent_peak_bytes;
  packing.lent_requests = timeline_.lending.requests.size() + timeline_.lending.early.size();
  packing.varies = HasVarying(*model_);
  packing.trial = std::move(trial_);
  for (std::size_t s = timeline_.prologue; s < timeline_.prologue + packing.period; ++s) {
    for (const TimelineEntry& entry : timeline_.scripts[s].entries) {
      UnplannedReport& counts = packing.cycle[static_cast<std::size_t>(entry.unplanned)];
      ++counts.requests;
      counts.bytes += entry.bytes;
    }
  }
  for (std::size_t i = 0; i < report_.segments.size(); ++i) {
    report_.segments[i].replay = finished.replay.segments[i];
  }
  ReportSpace(timeline_, finished.packing, &packing);
}

}  // namespace stalloc::planner
