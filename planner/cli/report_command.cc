// `stalloc-planner report`.
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "planner/analysis/rank_planner.h"
#include "planner/cli/commands.h"
#include "planner/cli/flags.h"
#include "planner/cli/timed_trace.h"
#include "planner/report/rank_text.h"
#include "planner/report/run_view.h"
#include "proto/codec/plan_reader.h"

ABSL_FLAG(std::uint32_t, ranks, 0, "Share state among `N` ranks in what would lower the peak; 0: as traced.");
ABSL_FLAG(bool, every_block, false, "With --json: class, layer and tensor of each block, too.");

namespace stalloc::planner {
namespace {

absl::StatusOr<std::optional<Plan>> ReadPlanOf(const std::vector<std::string>& positional, const Fingerprint& trace) {
  if (positional.size() < 2) {
    return std::nullopt;
  }
  Result<Plan> plan = ReadPlan(positional[1]);
  if (!plan.ok()) {
    return absl::InvalidArgumentError(plan.error());
  }
  if (plan.value().fingerprint.rank != trace.rank) {
    return absl::InvalidArgumentError(absl::StrCat(positional[1], " is the plan of another rank: expected ", trace.rank,
                                                   ", found ", plan.value().fingerprint.rank));
  }
  return std::move(plan.value());
}

absl::StatusOr<RankReport> Analyse(const std::string& path, const TracedRank& traced) {
  RankPlannerOptions options;
  options.plan = false;
  RankPlanner planner(traced, options);
  if (absl::Status status = planner.Analyse(); !status.ok()) {
    return absl::Status(status.code(), absl::StrCat(path, ": ", status.message()));
  }
  return planner.Finish({}).report;
}

absl::StatusOr<std::string> Render(const std::vector<std::string>& positional) {
  const absl::StatusOr<TimedTrace> timed = ReadTimedTrace(positional[0]);
  if (!timed.ok()) {
    return timed.status();
  }
  const absl::StatusOr<std::optional<Plan>> plan = ReadPlanOf(positional, timed->traced.head.fingerprint);
  if (!plan.ok()) {
    return plan.status();
  }
  const absl::StatusOr<std::optional<TimedTrace>> beside = ReadBeside();
  if (!beside.ok()) {
    return beside.status();
  }
  const absl::StatusOr<RankReport> report = Analyse(positional[0], timed->traced);
  if (!report.ok()) {
    return report.status();
  }
  if (!absl::GetFlag(FLAGS_json)) {
    return RankText(*report);
  }
  RunViewOptions options;
  options.plan = plan->has_value() ? &**plan : nullptr;
  options.ranks = absl::GetFlag(FLAGS_ranks);
  options.uses = &timed->uses;
  options.every_block = absl::GetFlag(FLAGS_every_block);
  if (beside->has_value()) {
    options.other = OtherRun{&(*beside)->traced, &(*beside)->clock, absl::GetFlag(FLAGS_ratio)};
  }
  return RunViewJson(*report, timed->traced, timed->clock, options);
}

int RunReport(const std::vector<std::string>& positional, Streams streams) {
  if (positional.empty() || positional.size() > 2) {
    return FailUsage(
        "report", absl::StrCat("expected TRACE and at most one PLAN, found arguments: ", positional.size()), streams);
  }
  if (const std::string wrong = WrongBeside(); !wrong.empty()) return FailUsage("report", wrong, streams);
  const absl::StatusOr<std::string> text = Render(positional);
  if (!text.ok()) {
    return FailInput("report", text.status(), streams);
  }
  streams.out << *text;
  return kExitOk;
}

}  // namespace

const Command& ReportCommand() {
  static const Command command{
      {"report",
       "TRACE [PLAN]",
       "Prints what a trace says about one rank; with --json, all that `stalloc report` draws.",
       "The JSON is one line whose size does not grow with the trace (but for --every_block): curves of live bytes by "
       "class,\n"
       "the blocks at the peak, the blocks that cost most, phases, layers, and the plan as a map. docs/report-json.md "
       "has "
       "its keys.\n",
       {"json", "ranks", "beside", "ratio", "every_block"},
       "report run1/trace/rank00000.trace run1/output/plan/rank00000.plan\n"},
      RunReport};
  return command;
}

}  // namespace stalloc::planner
