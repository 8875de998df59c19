// `stalloc-planner fit` and `edit`: what a run would be with other choices, and its trace with them.
#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "planner/cli/commands.h"
#include "planner/cli/flags.h"
#include "planner/cli/timed_trace.h"
#include "planner/fit/fit_search.h"
#include "planner/report/graph_pools.h"
#include "planner/report/json_writer.h"
#include "planner/report/micro_batch_fit.h"
#include "proto/codec/trace_reader.h"
#include "proto/codec/trace_writer.h"

ABSL_FLAG(std::uint64_t, memory, 0, "`BYTES` that may be live.");
ABSL_FLAG(std::string, scales, "1", "Micro-batches to try, as multiples of the traced one: `K,K`.");
ABSL_FLAG(double, bus, 25e9, "`BYTES` a second to the host, one way; 0: nothing is offloaded.");
ABSL_FLAG(std::string, recompute_layers, "", "`LAYERS` that are recomputed, by the names that fit gives them.");
ABSL_FLAG(std::string, offload_layers, "", "`LAYERS` whose activations are offloaded.");
ABSL_FLAG(bool, state_offloaded, false, "The optimizer's state is offloaded between its steps.");
ABSL_FLAG(bool, accumulated, false,
          "Of a run whose steps have one micro-batch: as the last of several, with gradients of those before.");
ABSL_FLAG(bool, single, false, "Of a run whose steps have several micro-batches: with the first of them alone.");
ABSL_FLAG(bool, candidates, false, "What choosing all layers of each kind would do, too.");
ABSL_FLAG(double, scale, 1, "The micro-batch, `K` times the traced one.");
ABSL_FLAG(double, first, 1, "The first micro-batch of a step, `K` times as large as those behind it.");

namespace stalloc::planner {
namespace {

std::vector<BlockPart> TracedParts(const DeviceFacts& facts, const TimedTrace* beside) {
  if (beside == nullptr) return PartsByClass(facts);
  for (const DeviceTrace& device : beside->traced.devices) {
    if (device.device != facts.device.device) continue;
    const DeviceFacts other(beside->traced, device, beside->clock);
    return FitMicroBatch(facts, other, absl::GetFlag(FLAGS_ratio)).parts;
  }
  return PartsByClass(facts);
}

std::vector<BlockPart> PartsOf(const DeviceFacts& facts, const LayerUnits& units, const TimedTrace* beside) {
  std::vector<BlockPart> parts = TracedParts(facts, beside);
  units.ScaleFirst(absl::GetFlag(FLAGS_first), &parts);
  return parts;
}

// What is wrong with --first, if anything.
std::string WrongFirst() {
  const double first = absl::GetFlag(FLAGS_first);
  return first > 0 ? "" : absl::StrCat("--first must be above 0: ", first);
}

// InvalidArgument names the word.
absl::StatusOr<std::vector<double>> ScalesOfFlag() {
  std::vector<double> scales;
  for (const absl::string_view word : absl::StrSplit(absl::GetFlag(FLAGS_scales), ',')) {
    double scale = 0;
    if (!absl::SimpleAtod(word, &scale) || !(scale > 0)) {
      return absl::InvalidArgumentError(absl::StrCat("--scales takes numbers above 0, found: '", word, "'"));
    }
    scales.push_back(scale);
  }
  return scales;
}

std::vector<std::string> NamesOf(const std::string& flag) {
  return flag.empty() ? std::vector<std::string>{} : std::vector<std::string>(absl::StrSplit(flag, ','));
}

absl::StatusOr<UnitChoice> ChoiceOfFlags(const LayerUnits& units) {
  UnitChoice choice = units.Nothing();
  choice.state_offloaded = absl::GetFlag(FLAGS_state_offloaded);
  choice.accumulated = absl::GetFlag(FLAGS_accumulated);
  choice.single = absl::GetFlag(FLAGS_single);
  const auto take = [&](const std::string& flag, UnitUse use) -> absl::Status {
    for (const std::string& name : NamesOf(flag)) {
      const std::size_t unit = units.Find(name);
      if (unit == units.units().size()) {
        return absl::InvalidArgumentError(
            absl::StrCat("the trace has no layer that could be recomputed called ", name));
      }
      choice.uses[unit] = use;
    }
    return absl::OkStatus();
  };
  if (absl::Status status = take(absl::GetFlag(FLAGS_recompute_layers), UnitUse::kRecomputed); !status.ok())
    return status;
  if (absl::Status status = take(absl::GetFlag(FLAGS_offload_layers), UnitUse::kOffloaded); !status.ok()) return status;
  return choice;
}

void WriteNames(const char* key, const LayerUnits& units, const UnitChoice& choice, UnitUse use, JsonWriter* json) {
  json->Key(key).BeginArray();
  for (std::size_t i = 0; i < units.units().size(); ++i) {
    if (choice.uses[i] == use) json->Value(units.units()[i].name);
  }
  json->EndArray();
}

void WriteResult(double scale, const FitResult& found, const EditedPeak& untouched, const FitSearch& search,
                 const LayerUnits& units, JsonWriter* json) {
  json->BeginObject().Key("scale").Value(scale).Key("untouched_peak").Value(untouched.live);
  json->Key("fits").Value(found.fits).Key("peak").Value(found.peak.live).Key("cost_ns").Value(found.cost_ns);
  // Of it, what an iteration as traced costs: what grows with the micro-batch, and what does not.
  const std::int64_t fixed = search.CostOf(found.choice, 0);
  json->Key("fixed_cost_ns").Value(fixed).Key("growing_cost_ns").Value(search.CostOf(found.choice, 1) - fixed);
  json->Key("bound").Value(found.bound).Key("pool").Value(found.peak.pool);
  json->Key("outside_pool").Value(found.peak.outside_pool);
  WriteNames("recompute", units, found.choice, UnitUse::kRecomputed, json);
  WriteNames("offload", units, found.choice, UnitUse::kOffloaded, json);
  json->Key("offload_state").Value(found.choice.state_offloaded).EndObject();
}

void WriteCandidates(const std::vector<FitCandidate>& candidates, JsonWriter* json) {
  json->Key("candidates").BeginArray();
  for (const FitCandidate& one : candidates) {
    json->BeginObject().Key("layers").Value(one.layers);
    json->Key("use").Value(one.use == UnitUse::kRecomputed ? "recompute" : "offload");
    json->Key("count").Value(one.count).Key("away").Value(one.away).Key("peak").Value(one.peak);
    json->Key("cost_ns").Value(one.cost_ns).Key("at_least").Value(one.at_least).EndObject();
  }
  json->EndArray();
}

// The untouched peak with k times the micro-batch is the most of fixed + k x scaling.
void WriteScaling(const std::vector<ScalingPoint>& points, JsonWriter* json) {
  json->Key("scaling").BeginObject().Key("fixed").BeginArray();
  for (const ScalingPoint& point : points) json->Value(point.fixed);
  json->EndArray().Key("scaling").BeginArray();
  for (const ScalingPoint& point : points) json->Value(point.scaling);
  json->EndArray().EndObject();
}

void WriteUnits(const LayerUnits& units, JsonWriter* json) {
  json->Key("layers").BeginArray();
  for (const LayerUnit& unit : units.units()) {
    json->BeginObject().Key("name").Value(unit.name).Key("away").Value(unit.away);
    json->Key("forward_ns").Value(unit.forward_ns).Key("leaves").Value(unit.leaves);
    json->Key("stores").Value(unit.stores).Key("iteration_ns").BeginArray();
    for (const std::int64_t ns : unit.iteration_ns) json->Value(ns);
    json->EndArray().EndObject();
  }
  json->EndArray();
}

// What captured graphs' pools had in the traced run; null: nothing was captured.
void WriteGraphPools(const DeviceFacts& facts, JsonWriter* json) {
  const GraphPools found = FindGraphPools(facts);
  json->Key("graph_pools");
  if (found.pools.empty()) {
    json->Null();
    return;
  }
  Bytes most = 0;
  for (const GraphPool& pool : found.pools) most += pool.most;
  json->BeginObject().Key("pools").Value(static_cast<std::uint64_t>(found.pools.size()));
  json->Key("bytes").Value(most).Key("held").Value(found.held).EndObject();
}

void WriteDevice(const TimedTrace& timed, const DeviceTrace& device, const TimedTrace* beside,
                 const std::vector<double>& scales, Streams streams, JsonWriter* json) {
  const DeviceFacts facts(timed.traced, device, timed.clock);
  const LayerUnits units(facts);
  const double bus = absl::GetFlag(FLAGS_bus);
  const FitSearch search(
      facts, units,
      {bus / 1e9, bus > 0 && device.device >= 0, absl::GetFlag(FLAGS_accumulated), absl::GetFlag(FLAGS_single)});
  const std::vector<BlockPart> parts = PartsOf(facts, units, beside);
  const EditPlayer player(facts);
  const StepTimes times = FindStepTimes(facts, timed.traced.segmentation);
  json->BeginObject().Key("device").Value(device.device);
  json->Key("peak").Value(PeakLiveBytes(device)).Key("step_ns").Value(times.step_ns);
  json->Key("passes_ns").Value(times.passes_ns).Key("optimizer_ns").Value(times.optimizer_ns);
  json->Key("results").BeginArray();
  for (const double scale : scales) {
    if (streams.err_is_terminal)
      streams.err << "\rdevice " << device.device << ": micro-batch x " << scale << "   " << std::flush;
    const EditedPeak untouched = player.Play({}, SizesAt(parts, scale));
    WriteResult(scale, search.Find(absl::GetFlag(FLAGS_memory), parts, scale), untouched, search, units, json);
  }
  if (streams.err_is_terminal) streams.err << "\r" << std::string(40, ' ') << "\r" << std::flush;
  json->EndArray();
  WriteScaling(FindScaling(facts, parts), json);
  if (absl::GetFlag(FLAGS_candidates)) WriteCandidates(search.Candidates(parts, 1), json);
  WriteUnits(units, json);
  WriteGraphPools(facts, json);
  json->EndObject();
}

int RunFit(const std::vector<std::string>& positional, Streams streams) {
  if (positional.size() != 1) {
    return FailUsage("fit", absl::StrCat("expected one TRACE, found arguments: ", positional.size()), streams);
  }
  const absl::StatusOr<std::vector<double>> scales = ScalesOfFlag();
  if (!scales.ok()) return FailUsage("fit", std::string(scales.status().message()), streams);
  if (const std::string wrong = WrongBeside(); !wrong.empty()) return FailUsage("fit", wrong, streams);
  if (const std::string wrong = WrongFirst(); !wrong.empty()) return FailUsage("fit", wrong, streams);
  const absl::StatusOr<TimedTrace> timed = ReadTimedTrace(positional[0]);
  if (!timed.ok()) return FailInput("fit", timed.status(), streams);
  if (timed->traced.segmentation.iterations() == 0) {
    const std::string why = "no iteration is marked, so that what grows with the micro-batch is not known";
    return FailInput("fit", absl::InvalidArgumentError(absl::StrCat(positional[0], ": ", why)), streams);
  }
  const absl::StatusOr<std::optional<TimedTrace>> beside = ReadBeside();
  if (!beside.ok()) return FailInput("fit", beside.status(), streams);
  JsonWriter json(JsonWriter::Style::kLine);
  json.BeginObject().Key("devices").BeginArray();
  for (const DeviceTrace& device : timed->traced.devices) {
    WriteDevice(*timed, device, beside->has_value() ? &**beside : nullptr, *scales, streams, &json);
  }
  json.EndArray().EndObject();
  streams.out << json.Take();
  return kExitOk;
}

absl::StatusOr<Trace> Edited(const std::string& path) {
  absl::StatusOr<Trace> trace = ReadTrace(path);
  if (!trace.ok()) return trace.status();
  const absl::StatusOr<TracedRank> traced = TakeTrace(*trace);
  if (!traced.ok()) return traced.status();
  const absl::StatusOr<std::optional<TimedTrace>> beside = ReadBeside();
  if (!beside.ok()) return beside.status();
  TraceClock clock;
  clock.Take(*trace);
  // The one that holds most is the one that trains.
  const auto most = std::max_element(traced->devices.begin(), traced->devices.end(),
                                     [](const auto& a, const auto& b) { return PeakLiveBytes(a) < PeakLiveBytes(b); });
  if (most == traced->devices.end()) return absl::InvalidArgumentError("the trace has no allocation");
  const DeviceFacts facts(*traced, *most, clock);
  const LayerUnits units(facts);
  const absl::StatusOr<UnitChoice> choice = ChoiceOfFlags(units);
  if (!choice.ok()) return choice.status();
  const double scale = absl::GetFlag(FLAGS_scale);
  const bool as_traced = scale == 1 && absl::GetFlag(FLAGS_first) == 1;
  const std::vector<Bytes> sizes =
      as_traced ? std::vector<Bytes>{}
                : SizesAt(PartsOf(facts, units, beside->has_value() ? &**beside : nullptr), scale);
  return EditTrace(*trace, *most, units.EditOf(*choice), sizes);
}

int RunEditing(const std::vector<std::string>& positional, Streams streams) {
  const std::string output = absl::GetFlag(FLAGS_output);
  if (positional.size() != 1 || !absl::EndsWith(output, ".trace")) {
    return FailUsage("edit",
                     absl::StrCat("expected one TRACE and --output=FILE.trace, found arguments: ", positional.size(),
                                  ", --output='", output, "'"),
                     streams);
  }
  if (const std::string wrong = WrongBeside(); !wrong.empty()) return FailUsage("edit", wrong, streams);
  if (const std::string wrong = WrongFirst(); !wrong.empty()) return FailUsage("edit", wrong, streams);
  if (!(absl::GetFlag(FLAGS_scale) > 0)) {
    return FailUsage("edit", absl::StrCat("--scale must be above 0: ", absl::GetFlag(FLAGS_scale)), streams);
  }
  const absl::StatusOr<Trace> edited = Edited(positional[0]);
  if (!edited.ok()) {
    return FailInput("edit",
                     absl::Status(edited.status().code(), absl::StrCat(positional[0], ": ", edited.status().message())),
                     streams);
  }
  if (absl::Status status = WriteTraceFile(output, *edited); !status.ok()) return FailInput("edit", status, streams);
  streams.out << (absl::GetFlag(FLAGS_json) ? absl::StrCat("{\"allocations\": ", edited->allocations,
                                                           ", \"events\": ", edited->events.size(), "}\n")
                                            : absl::StrCat(edited->allocations, " allocations, ", edited->events.size(),
                                                           " events: ", output, "\n"));
  return kExitOk;
}

}  // namespace

const Command& FitCommand() {
  static const Command command{
      {"fit",
       "TRACE",
       "Finds what to recompute and to offload so that so many bytes are enough; JSON, for `stalloc fit`.",
       "Every choice is played over the whole run. Costs are the traced times of forward passes, and bytes over the "
       "bus.\n",
       {"memory", "scales", "bus", "candidates", "accumulated", "single", "first", "beside", "ratio"},
       "fit run1/trace/rank00000.trace --memory=40000000000 --scales=1,2\n"},
      RunFit};
  return command;
}

const Command& EditCommand() {
  static const Command command{
      {"edit",
       "TRACE",
       "Writes the trace as it would be with layers recomputed or offloaded, or another micro-batch.",
       "Layers are separated by commas, with the names that `fit` has. The result can be planned, reported and "
       "checked\n"
       "as any trace. What is edited is the device that holds most.\n",
       {"output", "recompute_layers", "offload_layers", "state_offloaded", "accumulated", "single", "scale", "first",
        "beside", "ratio", "json"},
       "edit run1/trace/rank00000.trace --scale=2 --output=twice.trace\n"},
      RunEditing};
  return command;
}

}  // namespace stalloc::planner
