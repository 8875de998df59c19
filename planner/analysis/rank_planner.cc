#include "planner/analysis/rank_planner.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <iterator>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "planner/analysis/idle_checks.h"
#include "planner/analysis/peak.h"
#include "planner/analysis/plan_builder.h"
#include "planner/analysis/space_report.h"
#include "planner/analysis/timeline.h"
#include "planner/analysis/warnings.h"
#include "planner/packing/plan_check.h"
#include "proto/model/plan_shape.h"

namespace stalloc::planner {
namespace {

using Clock = std::chrono::steady_clock;

// Devices map memory in such units, and upstream allocators take it in such units.
constexpr Bytes kMappingUnit = Bytes{2} << 20;
// What an upstream caching allocator holds for each byte that is live in it (measured on varying sizes).
constexpr double kUpstreamOverhead = 1.03;

// The search ends within a ten-thousandth of the lower bound: more would not be seen in what a device holds.
constexpr Bytes kGoodEnough = 10000;

double SecondsSince(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

std::string DeviceName(DeviceIndex device) { return device == kCpuDevice ? "cpu" : absl::StrCat("device ", device); }

absl::Status WithDevice(const absl::Status& status, DeviceIndex device) {
  return absl::Status(status.code(), absl::StrCat(DeviceName(device), ": ", status.message()));
}

Predicted Predict(const Replay& replay, Bytes arena_bytes, Bytes lower_bound) {
  Predicted predicted;
  predicted.peak_live_bytes = replay.peak_live_bytes;
  predicted.planned_peak_bytes = replay.planned_peak_bytes;
  predicted.lower_bound_bytes = lower_bound;
  if (replay.upstream_peak_bytes > 0) {
    const auto held = static_cast<Bytes>(static_cast<double>(replay.upstream_peak_bytes) * kUpstreamOverhead);
    predicted.upstream_peak_bytes = RoundUp(held, kMappingUnit);
  }
  const Bytes held = RoundUp(arena_bytes, kMappingUnit) + predicted.upstream_peak_bytes;
  predicted.efficiency = held == 0 ? 0.0 : static_cast<double>(replay.peak_live_bytes) / static_cast<double>(held);
  return predicted;
}

Stability StabilityOf(const Cycle& cycle, const DeviceTrace& device, std::uint32_t segment) {
  if (segment == 0) {
    return Stability::kSetUp;
  }
  const std::uint32_t iteration = segment - 1;
  if (iteration < cycle.warmup) {
    return Stability::kWarmup;
  }
  if (iteration < cycle.warmup + cycle.period) {
    return Stability::kTemplate;
  }
  if (iteration >= cycle.complete) {
    return Stability::kBrokenOff;
  }
  const std::uint32_t model = cycle.warmup + cycle.ScriptOf(iteration) + 1;
  const std::vector<RequestKey> expected = MakeSequence(device, model).keys;
  const std::vector<RequestKey> found = MakeSequence(device, segment).keys;
  if (expected.size() > found.size() || !std::equal(expected.begin(), expected.end(), found.begin())) {
    return Stability::kDifferent;
  }
  return expected.size() == found.size() ? Stability::kSame : Stability::kSameThenMore;
}

class DevicePlanner {
 public:
  DevicePlanner(const DeviceTrace& device, const Segmentation& segmentation, const Trace& trace,
                const RankPlannerOptions& options, Solver& solver)
      : device_(device), segmentation_(segmentation), trace_(trace), options_(options), solver_(solver) {}

  // Fills report(), and plan() if all goes well.
  absl::Status Run() {
    report_.device = device_.device;
    report_.held_peak_bytes = device_.held_peak_bytes;
    report_.segments = SummarizeSegments(device_, segmentation_);
    report_.streams = SummarizeStreams(device_);
    const absl::StatusOr<Cycle> cycle = FindCycle(device_, segmentation_, trace_.complete);
    if (!cycle.ok()) {
      report_.peak = FindPeak(device_, nullptr);
      if (options_.plan) {
        return cycle.status();
      }
      report_.warnings.emplace_back(cycle.status().message());
      return absl::OkStatus();
    }
    model_ = CompareIterations(device_, *cycle, options_.all_streams);
    report_.warnings = cycle->warnings;
    report_.peak = FindPeak(device_, &model_);
    for (std::uint32_t i = 0; i < report_.segments.size(); ++i) {
      report_.segments[i].stability = StabilityOf(*cycle, device_, i);
    }
    return options_.plan ? MakePlan() : absl::OkStatus();
  }

  [[nodiscard]] DeviceReport& report() { return report_; }
  [[nodiscard]] DevicePlan& plan() { return plan_; }

 private:
  absl::Status MakePlan() {
    const Timeline timeline = BuildTimeline(device_, model_);
    const Bytes lower_bound = LoadBound(timeline.problem);
    SolveOptions solve = options_.solve;
    solve.lower_bound = lower_bound + lower_bound / kGoodEnough;
    solve.cycle = timeline.cycle();
    const Clock::time_point start = Clock::now();
    solve.deadline = start + options_.packing_time;
    const Packing packing = solver_.Solve(timeline.problem, solve);
    const double seconds = SecondsSince(start);
    if (absl::Status status = CheckPacking(timeline.problem, packing); !status.ok()) {
      return absl::InternalError(absl::StrCat("the solver's packing is wrong: ", status.message()));
    }
    plan_ = BuildDevicePlan(device_, timeline, packing);
    if (absl::Status status = CheckIdleAgainstPacking(timeline, packing, plan_); !status.ok()) {
      return absl::InternalError(absl::StrCat("the idle space is wrong: ", status.message()));
    }
    const absl::StatusOr<Replay> replay = ReplayTrace(device_, plan_);
    if (!replay.ok()) {
      return absl::InternalError(absl::StrCat("the plan does not hold for its own trace: ", replay.status().message()));
    }
    plan_.predicted = Predict(*replay, plan_.arena_bytes, lower_bound);
    ReportPacking(timeline, *replay, seconds);
    ReportSpace(timeline, packing, plan_, &*report_.packing);
    return absl::OkStatus();
  }

  void ReportPacking(const Timeline& timeline, const Replay& replay, double seconds) {
    PackingReport& packing = report_.packing.emplace();
    packing.solver = std::string(solver_.name());
    packing.blocks = timeline.problem.blocks.size();
    packing.arena_bytes = plan_.arena_bytes;
    packing.lower_bound_bytes = plan_.predicted.lower_bound_bytes;
    packing.seconds = seconds;
    packing.period = model_.cycle.period;
    packing.copies = timeline.copies;
    packing.warmup = model_.cycle.warmup;
    packing.predicted = plan_.predicted;
    for (std::size_t s = timeline.prologue; s < timeline.prologue + packing.period; ++s) {
      for (const TimelineEntry& entry : timeline.scripts[s].entries) {
        UnplannedReport& counts = packing.cycle[static_cast<std::size_t>(entry.unplanned)];
        ++counts.requests;
        counts.bytes += entry.bytes;
      }
    }
    for (std::size_t i = 0; i < report_.segments.size(); ++i) {
      report_.segments[i].replay = replay.segments[i];
    }
  }

  const DeviceTrace& device_;
  const Segmentation& segmentation_;
  const Trace& trace_;
  const RankPlannerOptions& options_;
  Solver& solver_;
  SteadyModel model_;
  DeviceReport report_;
  DevicePlan plan_;
};

void StartReport(const Trace& trace, const Segmentation& segmentation, RankReport* report) {
  report->fingerprint = trace.fingerprint;
  report->events = trace.events.size();
  report->trace_complete = trace.complete;
  report->census = segmentation.census;
  if (!trace.complete) {
    report->warnings.push_back(absl::StrCat(
        "the trace was not ended in order (the process was killed, or still runs); its valid part is used: ",
        trace.truncation.empty() ? "the last chunk is missing" : trace.truncation));
  }
  MarkFindings findings = MissingMarks(segmentation.census);
  std::move(findings.warnings.begin(), findings.warnings.end(), std::back_inserter(report->warnings));
  report->notes = std::move(findings.notes);
}

absl::Status SameRun(const Fingerprint& plan, const Fingerprint& trace) {
  if (plan.rank != trace.rank || plan.world_size != trace.world_size) {
    return absl::InvalidArgumentError(absl::StrCat("plan and trace are of different ranks: plan ", plan.rank, " of ",
                                                   plan.world_size, ", trace ", trace.rank, " of ", trace.world_size));
  }
  return absl::OkStatus();
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

absl::StatusOr<RankResult> PlanRank(const Trace& trace, const RankPlannerOptions& options, Solver& solver) {
  const Clock::time_point start = Clock::now();
  const Segmentation segmentation = CutAtMarks(trace);
  absl::StatusOr<std::vector<DeviceTrace>> devices = BuildLifetimes(trace, segmentation);
  if (!devices.ok()) {
    return devices.status();
  }
  if (devices->empty()) {
    return absl::InvalidArgumentError(absl::StrCat("the trace has no allocation: events ", trace.events.size()));
  }
  RankResult result;
  StartReport(trace, segmentation, &result.report);
  Plan plan;
  plan.fingerprint = trace.fingerprint;
  plan.planner_version = options.planner_version;
  plan.solver = std::string(solver.name());
  for (const DeviceTrace& device : *devices) {
    DevicePlanner planner(device, segmentation, trace, options, solver);
    if (absl::Status status = planner.Run(); !status.ok()) {
      result.plan_status.Update(WithDevice(status, device.device));
    } else if (options.plan) {
      plan.devices.push_back(std::move(planner.plan()));
    }
    result.report.devices.push_back(std::move(planner.report()));
  }
  if (options.plan && result.plan_status.ok()) {
    if (const Status shape = CheckPlanShape(plan); !shape.ok()) {
      return absl::InternalError(absl::StrCat("the plan is malformed: ", shape.error()));
    }
    result.plan = std::move(plan);
  }
  result.report.seconds = SecondsSince(start);
  return result;
}

absl::StatusOr<std::vector<Replay>> CheckPlanAgainstTrace(const Plan& plan, const Trace& trace) {
  if (const Status shape = CheckPlanShape(plan); !shape.ok()) {
    return absl::InvalidArgumentError(shape.error());
  }
  if (absl::Status status = SameRun(plan.fingerprint, trace.fingerprint); !status.ok()) {
    return status;
  }
  const absl::StatusOr<std::vector<DeviceTrace>> devices = BuildLifetimes(trace, CutAtMarks(trace));
  if (!devices.ok()) {
    return devices.status();
  }
  std::vector<Replay> replays;
  for (const DevicePlan& device_plan : plan.devices) {
    const auto device = std::find_if(devices->begin(), devices->end(), [&](const DeviceTrace& candidate) {
      return candidate.device == device_plan.device;
    });
    if (device == devices->end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("the trace has no allocation on the plan's ", DeviceName(device_plan.device)));
    }
    absl::StatusOr<Replay> replay = ReplayTrace(*device, device_plan);
    if (!replay.ok()) {
      return WithDevice(replay.status(), device_plan.device);
    }
    replays.push_back(*std::move(replay));
  }
  return replays;
}

}  // namespace stalloc::planner
