#include "bench/plan_quality/ablation.h"

#include <algorithm>
#include <ctime>
#include <exception>
#include <filesystem>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "planner/analysis/rank_planner.h"
#include "planner/packing/portfolio.h"
#include "planner/report/json_writer.h"
#include "planner/synth/generator.h"
#include "planner/trial/slot_trial.h"
#include "proto/codec/trace_reader.h"
#include "tests/analysis/corpus.h"
#include "tests/packing/corpus.h"

namespace stalloc::planner {
namespace {

absl::StatusOr<PackingPasses> PassesWithout(const std::string& names) {
  PackingPasses passes;
  for (const absl::string_view name : absl::StrSplit(names, '+')) {
    const auto found = std::find(kPassNames.begin(), kPassNames.end(), name);
    if (found == kPassNames.end()) {
      return absl::InvalidArgumentError(absl::StrCat("--without: expected names joined by + of all or ",
                                                     absl::StrJoin(kPassNames, ", "), "; found ", name));
    }
    passes.LeaveOut(static_cast<PackingPass>(found - kPassNames.begin()));
  }
  return passes;
}

absl::StatusOr<Trace> ReadRecordedTrace(const std::string& path) {
  try {
    return ReadCorpusFile(path);
  } catch (const std::exception& failure) {
    return absl::NotFoundError(failure.what());
  }
}

// With a stream for communication, and all that a model keeps.
absl::StatusOr<Trace> SynthesizeWhole(SynthOptions options) {
  constexpr std::uint64_t kBlocks = 25'000;
  options.state = ModelState::kFull;
  options.second_stream = true;
  options.iterations = 4;
  const absl::StatusOr<SynthOptions> scaled = ScaleToBlocks(options, kBlocks);
  return scaled.ok() ? Synthesize(*scaled) : scaled.status();
}

}  // namespace

bool Variant::IsOfFinish() const {
  bool of_search = name.empty();
  for (std::size_t i = 0; i < static_cast<std::size_t>(kFirstFinishPass); ++i) {
    of_search |= !passes.Have(static_cast<PackingPass>(i));
  }
  return !of_search;
}

absl::StatusOr<std::vector<Variant>> VariantsOf(const std::vector<std::string>& items) {
  std::vector<std::string> names = items;
  if (items == std::vector<std::string>{"all"}) names.assign(kPassNames.begin(), kPassNames.end());
  std::vector<Variant> variants = {{}};
  for (const std::string& name : names) {
    const absl::StatusOr<PackingPasses> passes = PassesWithout(name);
    if (!passes.ok()) return passes.status();
    variants.push_back({name, *passes});
  }
  return variants;
}

std::vector<BenchTrace> AblationTraces(const std::string& root) {
  std::vector<BenchTrace> traces;
  for (const NamedFile& file : RecordedRuns(root)) {
    traces.push_back({absl::StrCat("plan/", file.name), [path = file.path] { return ReadRecordedTrace(path); }});
  }
  for (const char* const name : {"conv-multiscale", "gan", "var-bucket", "vit"}) {
    const std::string path = absl::StrCat(root, "/bench/corpus/unseen/", name, ".trace");
    traces.push_back({absl::StrCat("plan/", name), [path] { return ReadTrace(path); }});
  }
  for (const SynthPreset& preset : SynthPresets()) {
    traces.push_back({absl::StrCat("plan/synth/", preset.name), [&preset] { return SynthesizeWhole(preset.options); }});
  }
  return traces;
}

AblationRow RowOf(const Measurement& measurement, const Variant& variant) {
  return {.instance = measurement.instance,
          .without = variant.name,
          .load_bound = measurement.load_bound,
          .height = measurement.height,
          .seconds = measurement.cpu_seconds};
}

absl::StatusOr<AblationRow> MeasurePlan(const std::string& instance, const Trace& trace, const Variant& variant,
                                        const MeasureOptions& options) {
  const SlotTrial trial;
  RankPlannerOptions planner;
  planner.slot_judge = &trial;
  planner.packing.work = WorkOfSeconds(options.time_limit_s);
  planner.packing.solve.threads = options.threads;
  planner.packing.solve.seed = options.seed;
  planner.packing.solve.passes = variant.passes;
  const std::clock_t cpu = std::clock();
  const absl::StatusOr<RankResult> result = PlanRank(trace, planner, *MakePortfolio());
  if (!result.ok()) return result.status();
  if (!result->plan.has_value()) return result->plan_status;
  AblationRow row{.instance = instance,
                  .without = variant.name,
                  .seconds = static_cast<double>(std::clock() - cpu) / CLOCKS_PER_SEC,
                  .planned = true};
  for (const DeviceReport& device : result->report.devices) {
    if (!device.packing.has_value()) continue;
    row.load_bound += device.packing->lower_bound_bytes;
    row.height += device.packing->arena_bytes;
    row.held += device.packing->held_bytes;
    row.live += device.packing->predicted.peak_live_bytes;
    row.scatter += device.packing->scatter;
    for (const StreamPair& pair : device.packing->hand_overs) row.hand_overs += pair.hand_overs;
  }
  return row;
}

std::string AblationJson(const std::vector<AblationRow>& rows, const RunFacts& facts, double time_limit_s) {
  JsonWriter json(JsonWriter::Style::kLine);
  json.BeginObject().Key("benchmark").Value("plan_quality_ablation").Key("date").Value(facts.date);
  json.Key("version").Value(facts.version).Key("compiler").Value(facts.compiler);
  json.Key("command_line").Value(facts.command_line).Key("time_limit_s").Value(time_limit_s);
  json.Key("results").BeginArray();
  for (const AblationRow& row : rows) {
    json.BeginObject().Key("instance").Value(row.instance).Key("without").Value(row.without);
    json.Key("load_bound").Value(row.load_bound).Key("height").Value(row.height).Key("seconds").Value(row.seconds);
    if (row.planned) {
      json.Key("held").Value(row.held).Key("live").Value(row.live);
      json.Key("hand_overs").Value(row.hand_overs).Key("scatter").Value(row.scatter);
    }
    json.EndObject();
  }
  json.EndArray().EndObject();
  return json.Take();
}

}  // namespace stalloc::planner
