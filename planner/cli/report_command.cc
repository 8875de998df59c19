// `stalloc-planner report`.
#include <filesystem>
#include <optional>
#include <string>

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

int RunReport(const std::vector<std::string>& positional, Streams streams) {
  if (positional.empty() || positional.size() > 2) {
    return FailUsage(
        "report", absl::StrCat("expected TRACE and at most one PLAN, found arguments: ", positional.size()), streams);
  }
  TraceClock clock;
  const absl::StatusOr<TracedRank> traced =
      ReadTracedRank(positional[0], {}, [&](const Trace& chunk) { clock.Take(chunk); });
  if (!traced.ok()) {
    return FailInput("report", traced.status(), streams);
  }
  const absl::StatusOr<std::optional<Plan>> plan = ReadPlanOf(positional, traced->head.fingerprint);
  if (!plan.ok()) {
    return FailInput("report", plan.status(), streams);
  }
  RankPlannerOptions options;
  options.plan = false;
  RankPlanner planner(*traced, options);
  if (absl::Status status = planner.Analyse(); !status.ok()) {
    return FailInput("report", absl::Status(status.code(), absl::StrCat(positional[0], ": ", status.message())),
                     streams);
  }
  const absl::StatusOr<RankResult> result = planner.Finish({});
  if (!result.ok()) {
    return FailInput("report", result.status(), streams);
  }
  streams.out << (absl::GetFlag(FLAGS_json)
                      ? RunViewJson(result->report, *traced, clock, plan->has_value() ? &**plan : nullptr)
                      : RankText(result->report));
  return kExitOk;
}

}  // namespace

const Command& ReportCommand() {
  static const Command command{
      {"report",
       "TRACE [PLAN]",
       "Prints what a trace says about one rank; with --json, all that `stalloc report` draws.",
       "The JSON is one line whose size does not grow with the trace: curves of live bytes by class, the blocks at the "
       "peak,\n"
       "the blocks that cost most, phases, layers, and the plan as a map. planner/README.md has its keys.\n",
       {"json"}},
      RunReport};
  return command;
}

}  // namespace stalloc::planner
