// `stalloc-planner report`.
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "planner/analysis/rank_planner.h"
#include "planner/cli/commands.h"
#include "planner/cli/read_trace.h"
#include "planner/report/rank_text.h"

namespace stalloc::planner {
namespace {

int RunReport(const std::vector<std::string>& positional, Streams streams) {
  if (positional.size() != 1) {
    return FailUsage("report", absl::StrCat("expected one TRACE, found arguments: ", positional.size()), streams);
  }
  absl::StatusOr<TracedRank> traced = ReadTracedRank(positional[0]);
  if (!traced.ok()) return FailInput("report", traced.status(), streams);
  RankPlannerOptions options;
  options.plan = false;
  RankPlanner planner(*std::move(traced), options);
  if (absl::Status status = planner.Analyse(); !status.ok()) {
    const std::string text = absl::StrCat(positional[0], ": ", status.message());
    return FailInput("report", absl::Status(status.code(), text), streams);
  }
  streams.out << RankText(planner.Finish({}).report);
  return kExitOk;
}

}  // namespace

const Command& ReportCommand() {
  static const Command command{{"report",
                                "TRACE",
                                "Prints what a trace says about one rank.",
                                "All that `stalloc report` draws is `serve`'s \"view\". docs/report-json.md has its "
                                "keys.\n",
                                {},
                                "report run1/trace/rank00000.trace\n"},
                               RunReport};
  return command;
}

}  // namespace stalloc::planner
