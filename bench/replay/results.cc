#include "bench/replay/results.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "planner/report/json_writer.h"

namespace stalloc::bench {
namespace {

using planner::JsonWriter;
using Row = std::vector<std::string>;

std::string GiB(Bytes bytes) { return absl::StrFormat("%.3f", static_cast<double>(bytes) / static_cast<double>(kGiB)); }

double Ratio(Bytes held, const Experiment& experiment) {
  return static_cast<double>(held) / static_cast<double>(std::max<Bytes>(experiment.replayed.peak_live_bytes, 1));
}

std::string RatioText(double ratio) { return absl::StrFormat("%.5f", ratio); }

std::string OrderText(const Experiment& experiment) {
  return absl::StrCat(absl::StrJoin(experiment.planned, ","), " -> ", absl::StrJoin(experiment.served, ","));
}

void WriteKind(const Experiment& experiment, std::size_t kind, JsonWriter& json) {
  json.Key(ServedByName(static_cast<ServedBy>(kind))).BeginObject();
  json.Key("requests").Value(experiment.replayed.requests[kind]).Key("bytes").Value(experiment.replayed.bytes[kind]);
  if (const PairTimes& times = experiment.times[kind]; times.pairs > 0) {
    json.Key("pairs_timed").Value(times.pairs);
    json.Key("pair_median_ns").Value(times.median_ns).Key("pair_p99_ns").Value(times.p99_ns);
    json.Key("pair_mean_ns").Value(times.mean_ns);
  }
  json.EndObject();
}

void WriteMisses(const std::array<std::uint64_t, kMissReasons>& misses, JsonWriter& json) {
  json.Key("misses").BeginObject();
  for (std::size_t i = 1; i < kMissReasons; ++i) {
    json.Key(MissReasonName(static_cast<MissReason>(i))).Value(misses[i]);
  }
  json.EndObject();
}

void WriteActivity(const Activity& activity, JsonWriter& json) {
  json.Key("requests").BeginObject();
  for (std::size_t i = 0; i < kServedKinds; ++i) {
    json.Key(ServedByName(static_cast<ServedBy>(i))).Value(activity.requests[i]);
  }
  json.EndObject();
  WriteMisses(activity.misses, json);
  json.Key("growth_bytes").Value(activity.growth_bytes).Key("upstream_growth_bytes").Value(activity.upstream_bytes);
  json.Key("moves").Value(activity.moves).Key("moved_bytes").Value(activity.moved_bytes);
  json.Key("driver_calls").BeginObject();
  for (std::size_t i = 0; i < kDriverCalls; ++i) {
    json.Key(DriverCallName(static_cast<DriverCall>(i))).Value(activity.driver_calls[i]);
  }
  json.EndObject();
}

void WriteExperiment(const Experiment& experiment, JsonWriter& json) {
  const Replayed& replayed = experiment.replayed;
  json.BeginObject().Key("run").Value(experiment.name);
  json.List("planned_from", experiment.planned);
  json.List("served", experiment.served);
  json.Key("warmup").Value(experiment.warmup.size());
  json.Key("plan_bytes").Value(experiment.plan_bytes).Key("plan_seconds").Value(experiment.plan_seconds);
  json.Key("peak_live_bytes").Value(replayed.peak_live_bytes);
  json.Key("peak_held_bytes").Value(replayed.peak_held_bytes).Key("ratio").Value(replayed.ratio());
  json.Key("efficiency").Value(replayed.efficiency());
  json.Key("arena_bytes").Value(replayed.arena_bytes).Key("upstream_bytes").Value(replayed.upstream_bytes);
  json.Key("growth_steps").Value(replayed.growths.size()).Key("growth_bytes").Value(replayed.growth_bytes());
  json.Key("moves").Value(replayed.moves).Key("moved_bytes").Value(replayed.moved_bytes);
  json.Key("stream_events").Value(replayed.stream_events).Key("stream_waits").Value(replayed.stream_waits);
  json.Key("gave_up").Value(replayed.gave_up).Key("served_by").BeginObject();
  for (std::size_t kind = 0; kind < kServedKinds; ++kind) WriteKind(experiment, kind, json);
  json.EndObject();
  WriteMisses(replayed.misses, json);
  if (const auto& since = replayed.since_plan; since.has_value()) {
    json.Key("since_plan").BeginObject();
    json.Key("live_bytes").Value(since->peaks.live_bytes).Key("held_bytes").Value(since->peaks.held_bytes);
    json.EndObject();
  }
  json.Key("native_bytes").Value(experiment.native_bytes);
  json.Key("native_ratio").Value(Ratio(experiment.native_bytes, experiment));
  json.Key("expandable_bytes").Value(experiment.expandable_bytes);
  json.Key("expandable_ratio").Value(Ratio(experiment.expandable_bytes, experiment));
  json.Key("iterations").BeginArray();
  for (std::size_t i = 0; i < replayed.iterations.size(); ++i) {
    json.BeginObject().Key("iteration").Value(experiment.served[i]);
    json.Key("live_bytes").Value(replayed.iterations[i].live_bytes);
    json.Key("held_bytes").Value(replayed.iterations[i].held_bytes);
    json.Key("expandable_held_bytes").Value(experiment.expandable_iterations[i].held_bytes);
    WriteActivity(replayed.activities[i], json);
    json.EndObject();
  }
  json.EndArray().EndObject();
}

// Mean over the experiments of what a peer holds.
double MeanRatio(const FloorResult& result, Bytes Experiment::*held) {
  double sum = 0;
  for (const Experiment& experiment : result.experiments) sum += Ratio(experiment.*held, experiment);
  return sum / static_cast<double>(result.experiments.size());
}

}  // namespace

std::string ExperimentTable(const std::vector<Experiment>& experiments) {
  std::vector<Row> rows = {{"run", "planned -> served", "live GiB", "held / live", "native", "expandable", "planned",
                            "dynamic", "upstream", "growth steps"}};
  for (const Experiment& experiment : experiments) {
    const Replayed& replayed = experiment.replayed;
    rows.push_back({experiment.name, OrderText(experiment), GiB(replayed.peak_live_bytes), RatioText(replayed.ratio()),
                    RatioText(Ratio(experiment.native_bytes, experiment)),
                    RatioText(Ratio(experiment.expandable_bytes, experiment)), absl::StrCat(replayed.requests[0]),
                    absl::StrCat(replayed.requests[1]), absl::StrCat(replayed.requests[2]),
                    absl::StrCat(replayed.growths.size())});
  }
  return planner::MarkdownTable(rows);
}

std::string FloorTable(const std::vector<FloorResult>& floors) {
  std::vector<Row> rows = {{"floor", "held / live at most", "found (mean)", "worst", "of", "native", "expandable", ""}};
  for (const FloorResult& result : floors) {
    const Spread spread = RatioSpread(result.experiments);
    rows.push_back({result.floor.name, RatioText(result.floor.ratio), RatioText(spread.mean), RatioText(spread.worst),
                    absl::StrCat(result.experiments.size()), RatioText(MeanRatio(result, &Experiment::native_bytes)),
                    RatioText(MeanRatio(result, &Experiment::expandable_bytes)), result.held() ? "held" : "missed"});
  }
  return planner::MarkdownTable(rows);
}

std::string ResultsJson(const std::vector<Experiment>& experiments, const std::vector<FloorResult>& floors,
                        const planner::RunFacts& facts) {
  JsonWriter json;
  json.BeginObject().Key("benchmark").Value("replay").Key("date").Value(facts.date);
  json.Key("version").Value(facts.version).Key("compiler").Value(facts.compiler);
  json.Key("command_line").Value(facts.command_line).Key("experiments").BeginArray();
  for (const Experiment& experiment : experiments) WriteExperiment(experiment, json);
  json.EndArray().Key("floors").BeginArray();
  for (const FloorResult& result : floors) {
    const Spread spread = RatioSpread(result.experiments);
    json.BeginObject().Key("name").Value(result.floor.name).Key("ratio_at_most").Value(result.floor.ratio);
    json.Key("mean_ratio").Value(spread.mean).Key("worst_ratio").Value(spread.worst);
    json.Key("held").Value(result.held()).Key("experiments").BeginArray();
    for (const Experiment& experiment : result.experiments) WriteExperiment(experiment, json);
    json.EndArray().EndObject();
  }
  json.EndArray().EndObject();
  return json.Take();
}

}  // namespace stalloc::bench
