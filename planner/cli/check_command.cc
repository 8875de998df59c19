// `stalloc-planner check`.
#include <cstddef>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "planner/analysis/rank_planner.h"
#include "planner/cli/commands.h"
#include "planner/cli/flags.h"
#include "planner/cli/read_trace.h"
#include "planner/report/json_writer.h"
#include "planner/report/quantities.h"
#include "planner/report/text_table.h"
#include "proto/codec/plan_reader.h"

namespace stalloc::planner {
namespace {

std::string ReplayText(const Plan& plan, const std::vector<Replay>& replays) {
  TextTable table({"device", "segment", "requests", "hits", "taken", "unplanned", "unknown"});
  for (std::size_t d = 0; d < replays.size(); ++d) {
    for (std::size_t s = 0; s < replays[d].segments.size(); ++s) {
      const SegmentReplay& segment = replays[d].segments[s];
      table.AddRow({absl::StrCat(plan.devices[d].device), s == 0 ? "set-up" : absl::StrCat(s - 1),
                    absl::StrCat(segment.requests), absl::StrCat(segment.hits), absl::StrCat(segment.occupied),
                    absl::StrCat(segment.unplanned), absl::StrCat(segment.unmatched)});
    }
  }
  return table.Render();
}

std::string ReplayJson(const Plan& plan, const std::vector<Replay>& replays) {
  JsonWriter json;
  json.BeginObject().Key("valid").Value(true).Key("devices").BeginArray();
  for (std::size_t d = 0; d < replays.size(); ++d) {
    json.BeginObject().Key("device").Value(plan.devices[d].device);
    json.Key("arena_bytes").Value(plan.devices[d].arena_bytes);
    json.Key("peak_live_bytes").Value(replays[d].peak_live_bytes);
    json.Key("planned_peak_bytes").Value(replays[d].planned_peak_bytes);
    json.Key("upstream_peak_bytes").Value(replays[d].upstream_peak_bytes);
    json.Objects("segments", replays[d].segments, [&](const SegmentReplay& segment) {
      json.Key("requests").Value(segment.requests).Key("hits").Value(segment.hits);
      json.Key("occupied").Value(segment.occupied).Key("unplanned").Value(segment.unplanned);
      json.Key("unmatched").Value(segment.unmatched);
    });
    json.EndObject();
  }
  json.EndArray().EndObject();
  return json.Take();
}

int RunCheck(const std::vector<std::string>& positional, Streams streams) {
  if (positional.size() != 2) {
    return FailUsage("check", absl::StrCat("expected PLAN and TRACE, found arguments: ", positional.size()), streams);
  }
  const Result<Plan> plan = ReadPlan(positional[0]);
  if (!plan.ok()) return FailInput("check", absl::InvalidArgumentError(plan.error()), streams);
  const absl::StatusOr<TracedRank> trace = ReadTracedRank(positional[1]);
  if (!trace.ok()) return FailInput("check", trace.status(), streams);
  const absl::StatusOr<std::vector<Replay>> replays = CheckPlanAgainstTrace(plan.value(), *trace);
  if (!replays.ok()) {
    return FailInput("check",
                     absl::InvalidArgumentError(absl::StrCat(positional[0], " does not hold for ", positional[1], ": ",
                                                             replays.status().message())),
                     streams);
  }
  if (absl::GetFlag(FLAGS_json)) {
    streams.out << ReplayJson(plan.value(), *replays);
  } else {
    streams.out << "the plan holds for the trace\n\n" << ReplayText(plan.value(), *replays);
  }
  return kExitOk;
}

}  // namespace

const Command& CheckCommand() {
  static const Command command{
      {"check",
       "PLAN TRACE",
       "Proves again that a plan holds for its trace, and counts what would be served from it.",
       "Checked are shape, ranks, that no two planned blocks overlap while both are alive in the traced run, and that "
       "every\n"
       "slot lists the slots it inherits bytes from.\n",
       {"json"},
       "check run1/output/plan/rank00000.plan run1/trace/rank00000.trace\n"},
      RunCheck};
  return command;
}

}  // namespace stalloc::planner
