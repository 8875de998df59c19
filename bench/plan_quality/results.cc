#include "bench/plan_quality/results.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "planner/report/json_writer.h"

namespace stalloc::planner {
namespace {

using Row = std::vector<std::string>;

std::string Cell(const Measurement& measurement) {
  if (!measurement.finished) return absl::StrFormat("did not finish in %.0f s", measurement.seconds);
  return absl::StrFormat("%.5f%s (%.2f)", measurement.ratio(), measurement.optimal() ? "=" : "", measurement.seconds);
}

// In order of first appearance.
std::vector<std::string> Each(const std::vector<Measurement>& measurements, std::string Measurement::*field) {
  std::vector<std::string> names;
  for (const Measurement& measurement : measurements) {
    if (std::find(names.begin(), names.end(), measurement.*field) == names.end()) names.push_back(measurement.*field);
  }
  return names;
}

// The header first.
std::vector<Row> TableRows(const std::vector<Measurement>& measurements) {
  const std::vector<std::string> solvers = Each(measurements, &Measurement::solver);
  std::vector<Row> rows = {{"instance", "blocks", "bound"}};
  for (const std::string& solver : solvers) rows[0].push_back(solver);
  for (const std::string& instance : Each(measurements, &Measurement::instance)) {
    Row row(rows[0].size(), "-");
    row[0] = instance;
    for (const Measurement& measurement : measurements) {
      if (measurement.instance != instance) continue;
      row[1] = absl::StrCat(measurement.blocks);
      row[2] = absl::StrCat(measurement.load_bound);
      const auto solver = std::find(solvers.begin(), solvers.end(), measurement.solver) - solvers.begin();
      row[3 + static_cast<std::size_t>(solver)] = Cell(measurement);
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

void WriteMeasurement(const Measurement& measurement, JsonWriter& json) {
  json.BeginObject().Key("instance").Value(measurement.instance).Key("solver").Value(measurement.solver);
  json.Key("blocks").Value(measurement.blocks).Key("load_bound").Value(measurement.load_bound);
  if (measurement.capacity) json.Key("capacity").Value(*measurement.capacity);
  json.Key("seconds").Value(measurement.seconds).Key("finished").Value(measurement.finished);
  if (measurement.finished) {
    json.Key("height").Value(measurement.height).Key("ratio").Value(measurement.ratio());
    json.Key("proved_bound").Value(measurement.proved_bound).Key("optimal").Value(measurement.optimal());
  }
  json.Key("improvements").BeginArray();
  for (const Improvement& improvement : measurement.improvements) {
    json.BeginArray().Value(improvement.seconds).Value(improvement.height).EndArray();
  }
  json.EndArray().EndObject();
}

}  // namespace

std::string ResultsMarkdown(const std::vector<Measurement>& measurements) {
  return MarkdownTable(TableRows(measurements));
}

std::string ResultsJson(const std::vector<Measurement>& measurements, const RunFacts& facts, const Limits& limits) {
  JsonWriter json;
  json.BeginObject().Key("benchmark").Value("plan_quality").Key("date").Value(facts.date);
  json.Key("version").Value(facts.version).Key("compiler").Value(facts.compiler);
  json.Key("command_line").Value(facts.command_line).Key("threads").Value(limits.threads);
  json.Key("time_limit_s").Value(limits.time_limit_s).Key("baseline_limit_s").Value(limits.baseline_limit_s);
  json.Key("results").BeginArray();
  for (const Measurement& measurement : measurements) WriteMeasurement(measurement, json);
  json.EndArray().EndObject();
  return json.Take();
}

}  // namespace stalloc::planner
