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
#include "planner/cli/read_trace.h"
#include "planner/report/rank_text.h"
#include "planner/report/run_view.h"
#include "proto/codec/plan_reader.h"

ABSL_FLAG(std::uint32_t, ranks, 0, "Share state among `N` ranks in what would lower the peak; 0: as traced.");
ABSL_FLAG(std::string, beside, "",
          "A second `TRACE` of the program, with another micro-batch: sizes are fitted to both.");
ABSL_FLAG(bool, every_block, false, "With --json: class, layer and tensor of each block, too.");
ABSL_FLAG(double, ratio, 0, "The second trace's micro-batch over the first's: `R`.");

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

// A trace, when its events happened, and what used its blocks.
struct TimedTrace {
  TracedRank traced;
  TraceClock clock;
  std::vector<BlockUse> uses;
};

absl::StatusOr<TimedTrace> ReadTimedTrace(const std::string& path) {
  TimedTrace timed;
  const auto keep = [&](const Trace& chunk, const std::vector<BlockUse>& uses) {
    timed.clock.Take(chunk);
    timed.uses.insert(timed.uses.end(), uses.begin(), uses.end());
  };
  absl::StatusOr<TracedRank> traced = ReadTracedRank(path, {}, keep);
  if (!traced.ok()) {
    return traced.status();
  }
  timed.traced = *std::move(traced);
  return timed;
}

// Nullopt where --beside is not given.
absl::StatusOr<std::optional<TimedTrace>> ReadBeside() {
  const std::string path = absl::GetFlag(FLAGS_beside);
  if (path.empty()) {
    return std::nullopt;
  }
  absl::StatusOr<TimedTrace> timed = ReadTimedTrace(path);
  if (!timed.ok()) {
    return timed.status();
  }
  return std::optional<TimedTrace>(*std::move(timed));
}

absl::StatusOr<RankReport> Analyse(const std::string& path, const TracedRank& traced) {
  RankPlannerOptions options;
  options.plan = false;
  RankPlanner planner(traced, options);
  if (absl::Status status = planner.Analyse(); !status.ok()) {
    return absl::Status(status.code(), absl::StrCat(path, ": ", status.message()));
  }
  absl::StatusOr<RankResult> result = planner.Finish({});
  if (!result.ok()) {
    return result.status();
  }
  return std::move(result->report);
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
  const double ratio = absl::GetFlag(FLAGS_ratio);
  if (!absl::GetFlag(FLAGS_beside).empty() && (!(ratio > 0) || ratio == 1)) {
    return FailUsage("report", absl::StrCat("--beside needs a --ratio above 0 other than 1, found: ", ratio), streams);
  }
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
