#include "planner/analysis/rank_planner.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstddef>
#include <iterator>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "planner/analysis/warnings.h"
#include "proto/model/plan_shape.h"

namespace stalloc::planner {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

std::string DeviceName(DeviceIndex device) { return device == kCpuDevice ? "cpu" : absl::StrCat("device ", device); }

absl::Status WithDevice(const absl::Status& status, DeviceIndex device) {
  return absl::Status(status.code(), absl::StrCat(DeviceName(device), ": ", status.message()));
}

void StartReport(const TracedRank& traced, RankReport* report) {
  const Trace& trace = traced.head;
  report->fingerprint = trace.fingerprint;
  report->events = traced.events;
  report->trace_complete = trace.complete;
  report->census = traced.segmentation.census;
  if (!trace.complete) {
    report->warnings.push_back(absl::StrCat(
        "the trace was not ended in order (the process was killed, or still runs); its valid part is used: ",
        trace.truncation.empty() ? "the last chunk is missing" : trace.truncation,
        ". Figures are of these events alone: the run's peak is at least as high"));
  }
  MarkFindings findings = MissingMarks(traced.segmentation.census);
  std::move(findings.warnings.begin(), findings.warnings.end(), std::back_inserter(report->warnings));
  report->notes = std::move(findings.notes);
  if (traced.head.live_before > 0) {
    report->notes.push_back(
        absl::StrCat("the trace began late: its set-up is the ", traced.head.live_before,
                     " blocks that were live then. Peaks are right, but a plan of it does not know a run's first "
                     "iterations; plan from a trace that begins with its run"));
  }
}

bool VariesWithoutPasses(const RankReport& report) {
  return report.census.microbatches == 0 &&
         std::any_of(report.devices.begin(), report.devices.end(),
                     [](const DeviceReport& device) { return device.packing.has_value() && device.packing->varies; });
}

absl::Status SameRun(const Fingerprint& plan, const Fingerprint& trace) {
  if (plan.rank != trace.rank || plan.world_size != trace.world_size) {
    return absl::InvalidArgumentError(absl::StrCat("plan and trace are of different ranks: plan ", plan.rank, " of ",
                                                   plan.world_size, ", trace ", trace.rank, " of ", trace.world_size));
  }
  return absl::OkStatus();
}

// They are over, and taking the plan up would read them for nothing. How many iterations there were still counts.
void ForgetRequestsOfPrologue(DevicePlan* plan) {
  for (Script& script : plan->prologue) script = {};
}

}  // namespace

RankPlanner::RankPlanner(TracedRank traced, RankPlannerOptions options)
    : traced_(std::move(traced)), options_(std::move(options)) {
  for (const DeviceTrace& device : traced_.devices) {
    devices_.push_back({DevicePlanner(device, traced_)});
  }
}

absl::Status RankPlanner::Analyse() {
  const Clock::time_point start = Clock::now();
  if (traced_.devices.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("the trace has no allocation: events ", traced_.events));
  }
  StartReport(traced_, &result_.report);
  for (Device& device : devices_) {
    const absl::Status status =
        device.planner.Analyse(options_.all_streams, ObservedOf(device.planner.device()), options_.running);
    if (!options_.plan) {
      if (status.ok()) {
        device.planner.Forecast(options_.slots);
      } else {
        device.planner.report().warnings.emplace_back(status.message());
      }
      continue;
    }
    result_.plan_status.Update(status.ok() ? status : WithDevice(status, device.planner.device()));
    device.has_problem = status.ok();
    if (!status.ok()) continue;
    const absl::Status laid =
        device.planner.LayOut(options_.slots, options_.slot_judge, options_.packing, options_.lend_graphs);
    if (!laid.ok()) return WithDevice(laid, device.planner.device());
  }
  seconds_ += SecondsSince(start);
  return absl::OkStatus();
}

const ObservedDevice* RankPlanner::ObservedOf(DeviceIndex device) const {
  if (!options_.observed.has_value()) return nullptr;
  const auto found = std::find_if(options_.observed->devices.begin(), options_.observed->devices.end(),
                                  [&](const ObservedDevice& observed) { return observed.device == device; });
  return found == options_.observed->devices.end() ? nullptr : &*found;
}

bool RankPlanner::HasProblem() const {
  return std::any_of(devices_.begin(), devices_.end(), [](const Device& device) { return device.has_problem; });
}

ProblemKey RankPlanner::Key() const {
  ProblemKey key{};
  for (const Device& device : devices_) {
    if (!device.has_problem) continue;
    const Timeline& timeline = device.planner.timeline();
    // The cycle decides among packings of equal height, and with its copies what lies in turns.
    const auto begin = static_cast<std::uint64_t>(timeline.cycle_begin) * (kMaxPeriod + 1) + timeline.copies;
    // So does the work that is left.
    const std::uint64_t end = timeline.end ^ std::rotl(device.planner.spent(), 32);
    key = KeyOfProblem(timeline.problem, {key[0] ^ begin, key[1] ^ end});
  }
  return key;
}

RankPacking RankPlanner::Solve(Solver& solver) const {
  RankPacking packing;
  for (const Device& device : devices_) {
    if (device.has_problem) packing.push_back(device.planner.Solve(options_.packing, solver));
  }
  return packing;
}

absl::Status RankPlanner::MakePlan(const RankPacking& packing) {
  const Clock::time_point start = Clock::now();
  const absl::Status status = options_.plan ? FinishPlan(packing) : absl::OkStatus();
  seconds_ += SecondsSince(start);
  return status;
}

RankResult RankPlanner::Finish(const RankPacking& packing) {
  const Clock::time_point start = Clock::now();
  for (Device& device : devices_) device.planner.Describe();
  for (Device& device : devices_) {
    result_.report.devices.push_back(std::move(device.planner.report()));
  }
  if (VariesWithoutPasses(result_.report)) result_.report.warnings.emplace_back(kVariesWithoutPasses);
  result_.report.seconds = seconds_ + SecondsSince(start);
  for (const SolvedPacking& solved : packing) result_.report.seconds += solved.seconds;
  return std::move(result_);
}

absl::Status RankPlanner::FinishPlan(const RankPacking& packing) {
  Plan plan;
  plan.fingerprint = traced_.head.fingerprint;
  plan.planner_version = options_.planner_version;
  std::size_t next = 0;
  for (Device& device : devices_) {
    if (!device.has_problem) continue;
    const SolvedPacking& solved = packing[next++];
    plan.solver = solved.solver;
    if (absl::Status status = device.planner.Finish(solved, options_.slot_judge); !status.ok()) {
      result_.plan_status.Update(WithDevice(status, device.planner.device()));
    } else {
      plan.devices.push_back(std::move(device.planner.plan()));
      if (options_.running) ForgetRequestsOfPrologue(&plan.devices.back());
    }
  }
  if (!result_.plan_status.ok()) {
    return absl::OkStatus();  // the report says what it can
  }
  if (const Status shape = CheckPlanShape(plan); !shape.ok()) {
    return absl::InternalError(absl::StrCat("the plan is malformed: ", shape.error()));
  }
  result_.plan = std::move(plan);
  return absl::OkStatus();
}

absl::StatusOr<RankResult> PlanRank(TracedRank traced, const RankPlannerOptions& options, Solver& solver) {
  RankPlanner planner(std::move(traced), options);
  if (absl::Status status = planner.Analyse(); !status.ok()) return status;
  const RankPacking packing = planner.Solve(solver);
  if (absl::Status status = planner.MakePlan(packing); !status.ok()) return status;
  return planner.Finish(packing);
}

absl::StatusOr<RankResult> PlanRank(const Trace& trace, const RankPlannerOptions& options, Solver& solver) {
  absl::StatusOr<TracedRank> traced = TakeTrace(trace);
  return traced.ok() ? PlanRank(*std::move(traced), options, solver) : traced.status();
}

absl::StatusOr<std::vector<Replay>> CheckPlanAgainstTrace(const Plan& plan, const TracedRank& traced) {
  if (const Status shape = CheckPlanShape(plan); !shape.ok()) {
    return absl::InvalidArgumentError(shape.error());
  }
  if (absl::Status status = SameRun(plan.fingerprint, traced.head.fingerprint); !status.ok()) {
    return status;
  }
  std::vector<Replay> replays;
  for (const DevicePlan& device_plan : plan.devices) {
    const auto device = std::find_if(traced.devices.begin(), traced.devices.end(), [&](const DeviceTrace& candidate) {
      return candidate.device == device_plan.device;
    });
    if (device == traced.devices.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("the trace has no allocation on the plan's ", DeviceName(device_plan.device)));
    }
    const auto is_gathered = [](const LentPool& pool) { return !pool.first_pieces.empty(); };
    const LendablePools pools =
        device_plan.lent_pools.empty()
            ? LendablePools{}
            : FindLendablePools(traced, *device, std::ranges::any_of(device_plan.lent_pools, is_gathered));
    absl::StatusOr<Replay> replay = ReplayTrace(*device, device_plan, {}, &pools);
    if (!replay.ok()) return WithDevice(replay.status(), device_plan.device);
    replays.push_back(*std::move(replay));
  }
  return replays;
}

absl::StatusOr<std::vector<Replay>> CheckPlanAgainstTrace(const Plan& plan, const Trace& trace) {
  const absl::StatusOr<TracedRank> traced = TakeTrace(trace);
  return traced.ok() ? CheckPlanAgainstTrace(plan, *traced) : traced.status();
}

}  // namespace stalloc::planner
