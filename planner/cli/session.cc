#include "planner/cli/session.h"

#include <algorithm>
#include <cmath>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "planner/analysis/period.h"
#include "planner/analysis/rank_planner.h"
#include "planner/cli/session_json.h"
#include "planner/cli/stop_signal.h"
#include "planner/cli/task_queue.h"
#include "planner/cli/traced_steps.h"
#include "planner/cli/version.h"
#include "planner/packing/portfolio.h"
#include "planner/report/run_view.h"
#include "planner/trial/slot_trial.h"
#include "planner/whatif/fit_search.h"
#include "planner/whatif/micro_batch_fit.h"
#include "proto/codec/plan_reader.h"
#include "proto/codec/trace_reader.h"

namespace stalloc::planner {
namespace {

int Threads() { return std::max(1, static_cast<int>(std::thread::hardware_concurrency())); }

// The micro-batches of an edited run.
struct MicroBatches {
  double scale = 1;  // over the traced ones
  double first = 1;  // of a step, over those after it
  bool accumulated = false;
  bool single = false;

  [[nodiscard]] bool as_traced() const { return scale == 1 && first == 1; }
};

MicroBatches TakeMicroBatches(JsonObject* request) {
  MicroBatches found;
  found.scale = request->Number("scale", 1);
  found.first = request->Number("first", 1);
  found.accumulated = request->Flag("accumulated");
  found.single = request->Flag("single");
  return found;
}

absl::Status CheckMicroBatches(const MicroBatches& sizes) {
  if (sizes.scale > 0 && sizes.first > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("scale and first must be above 0, found: ", sizes.scale, ", ", sizes.first));
}

Bytes TakeBytes(const char* key, JsonObject* request) {
  return static_cast<Bytes>(std::llround(std::clamp(request->Number(key, 0), 0.0, 0x1p62)));
}

absl::StatusOr<std::optional<Plan>> ReadPlanOf(const std::string& path, const Fingerprint& trace) {
  if (path.empty()) return std::nullopt;
  Result<Plan> plan = ReadPlan(path);
  if (!plan.ok()) return absl::InvalidArgumentError(plan.error());
  if (plan.value().fingerprint.rank != trace.rank) {
    return absl::InvalidArgumentError(absl::StrCat(path, " is the plan of another rank: expected ", trace.rank,
                                                   ", found ", plan.value().fingerprint.rank));
  }
  return std::move(plan.value());
}

// {"count", "size", "square", "each": [[often, size, square], ...]}
Load TakeLoad(JsonObject* object) {
  Load load{object->Number("count", 0), object->Number("size", 0), object->Number("square", 0), {}};
  for (const std::vector<double>& part : object->Lists("each")) {
    if (part.size() == 3) load.each.push_back({part[0], part[1], part[2]});
  }
  return load;
}

std::vector<LayerTimes> TimesOfLayers(const LayerUnits& units) {
  std::vector<LayerTimes> times;
  for (const LayerUnit& unit : units.units()) times.push_back({unit.name, unit.iteration_ns});
  return times;
}

// The plan of a trace that was edited, as the `plan` command would make it.
absl::StatusOr<RankResult> PlanEdited(const Trace& edited, bool plans, double seconds) {
  const SlotTrial trial;
  RankPlannerOptions options;
  options.plan = plans;
  options.packing.work = WorkOfSeconds(seconds);
  options.packing.solve.threads = Threads();
  options.packing.solve.stop = StopOnInterrupt();
  options.slot_judge = &trial;
  options.planner_version = Version();
  const std::unique_ptr<Solver> solver = MakePortfolio();
  return PlanRank(edited, options, *solver);
}

}  // namespace

// What what-ifs about one device share.
struct Session::Device {
  Device(const TracedRank& traced, const DeviceTrace& device, const TraceClock& clock)
      : facts(traced, device, clock), units(facts), player(facts), parts(PartsByClass(facts)) {}

  [[nodiscard]] std::vector<BlockPart> PartsOf(const MicroBatches& sizes) const {
    std::vector<BlockPart> found = parts;
    units.ScaleFirst(sizes.first, &found);
    return found;
  }
  // `host`: bytes; 0: whatever it takes.
  [[nodiscard]] FitSearch SearchOf(double bus, const MicroBatches& sizes, Bytes host = 0) const {
    FitCosts costs{bus / 1e9, bus > 0 && facts.device.device >= 0, sizes.accumulated, sizes.single};
    if (host > 0) costs.host_bytes = host;
    return {facts, units, player, costs};
  }
  [[nodiscard]] absl::StatusOr<UnitChoice> TakeChoice(const MicroBatches& sizes, JsonObject* request) const {
    UnitChoice choice = units.Nothing();
    choice.state_offloaded = request->Flag("offload_state");
    choice.accumulated = sizes.accumulated;
    choice.single = sizes.single;
    for (const auto& [key, use] : {std::pair("recompute", UnitUse::kRecomputed), {"offload", UnitUse::kOffloaded}}) {
      for (const std::string& name : request->Texts(key)) {
        const std::size_t unit = units.Find(name);
        if (unit == units.units().size()) {
          return absl::InvalidArgumentError(
              absl::StrCat("the trace has no layer that could be recomputed called ", name));
        }
        choice.uses[unit] = use;
      }
    }
    return choice;
  }

  const DeviceFacts facts;
  const LayerUnits units;
  [[nodiscard]] ChoiceSeconds SecondsOf(const UnitChoice& choice, const FitSearch& search) const {
    const auto fixed = static_cast<double>(search.CostOf(choice, 0));
    ChoiceSeconds seconds{(static_cast<double>(search.CostOf(choice, 1)) - fixed) / 1e9, fixed / 1e9, 0, {}};
    for (std::size_t i = 0; i < choice.uses.size(); ++i) {
      if (choice.uses[i] != UnitUse::kRecomputed) continue;
      seconds.forward += static_cast<double>(units.units()[i].forward_ns) / 1e9;
      seconds.recomputed.push_back(units.units()[i].name);
    }
    return seconds;
  }
  void WriteSeconds(const Load& load, const ChoiceSeconds& choice, JsonWriter* json) const {
    json->Key("step_seconds").Value(cost->Seconds(load, choice)).Key("at_least").Value(cost->AtLeast(load));
    json->NumberOrNull("host_share", cost->HostShare(load));
  }

  const EditPlayer player;
  std::vector<BlockPart> parts;     // from both traces, where there are two
  std::optional<Bytes> other_peak;  // live at that of the second trace
  std::optional<StepCost> cost;     // once it was requested
};

Session::Session(SessionTraces traces) : traces_(std::move(traces)) {}
Session::~Session() = default;

absl::StatusOr<std::string> Session::Answer(const std::string& line) {
  absl::StatusOr<JsonObject> request = JsonObject::Parse(line);
  if (!request.ok()) return request.status();
  const std::string name = request->Text("request");
  if (name == "period") return Period(&*request);
  for (const auto& [known, answer] : {std::pair("view", &Session::View),
                                      {"traced", &Session::Traced},
                                      {"cost", &Session::Cost},
                                      {"seconds", &Session::Seconds},
                                      {"search", &Session::Search},
                                      {"play", &Session::Play},
                                      {"plan", &Session::PlanChoice}}) {
    if (name != known) continue;
    if (absl::Status status = Read(); !status.ok()) return status;
    return (this->*answer)(&*request);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("request: expected view, traced, cost, seconds, search, play, plan or period, found '", name, "'"));
}

// For a history that is no trace yet.
absl::StatusOr<std::string> Session::Period(JsonObject* request) {
  const auto bytes = [&](const char* key) {
    const std::vector<double> numbers = request->Numbers(key);
    return std::vector<Bytes>(numbers.begin(), numbers.end());
  };
  const std::vector<Bytes> sizes = bytes("sizes");
  const std::vector<Bytes> live_before = bytes("live_before");
  if (absl::Status status = request->Finish(); !status.ok()) return status;
  if (live_before.size() < sizes.size()) {
    return absl::InvalidArgumentError(absl::StrCat("live_before: expected at least ", sizes.size(),
                                                   " numbers, as sizes has, found ", live_before.size()));
  }
  const PeriodCut found = FindPeriodCut(sizes, live_before);
  JsonWriter json(JsonWriter::Style::kLine);
  json.BeginObject();
  json.List("begins", found.begins);
  json.ObjectOrNull("pile", found.pile, [&](const auto& pile) {
    json.Key("repeats").Value(pile.repeats).Key("requests").Value(pile.requests).Key("bytes").Value(pile.bytes);
  });
  json.EndObject();
  return json.Take();
}

absl::Status Session::Read() {
  if (!timed_.has_value()) {
    absl::StatusOr<TimedTrace> timed = ReadTimedTrace(traces_.path);
    if (!timed.ok()) return timed.status();
    timed_ = *std::move(timed);
    devices_.resize(timed_->traced.devices.size());
  }
  if (!beside_.has_value() && !traces_.beside.empty()) {
    absl::StatusOr<TimedTrace> beside = ReadTimedTrace(traces_.beside);
    if (!beside.ok()) return beside.status();
    beside_ = *std::move(beside);
  }
  return absl::OkStatus();
}

absl::Status Session::ReadEvents() {
  if (trace_.has_value()) return absl::OkStatus();
  absl::StatusOr<Trace> trace = ReadTrace(traces_.path);
  if (trace.ok()) trace_ = *std::move(trace);
  return trace.status();
}

absl::StatusOr<Session::Device*> Session::DeviceAt(std::size_t index) {
  if (timed_->traced.segmentation.iterations() == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(traces_.path, ": no iteration is marked, so that what grows with the micro-batch is not known"));
  }
  if (devices_[index] != nullptr) return devices_[index].get();
  auto made = std::make_unique<Device>(timed_->traced, timed_->traced.devices[index], timed_->clock);
  if (beside_.has_value()) {
    for (const DeviceTrace& other : beside_->traced.devices) {
      if (other.device != made->facts.device.device) continue;
      const DeviceFacts facts(beside_->traced, other, beside_->clock);
      MicroBatchFit fit = FitMicroBatch(made->facts, facts, traces_.ratio);
      made->parts = std::move(fit.parts);
      made->other_peak = fit.other_peak_bytes;
    }
  }
  devices_[index] = std::move(made);
  return devices_[index].get();
}

absl::StatusOr<Session::Device*> Session::DeviceOf(JsonObject* request) {
  const std::vector<DeviceTrace>& all = timed_->traced.devices;
  const double wanted = request->Number("device", 0);
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i].device == wanted) return DeviceAt(i);
  }
  return absl::InvalidArgumentError(absl::StrCat("device: the trace has no allocation on device ", wanted));
}

absl::StatusOr<std::string> Session::View(JsonObject* request) {
  const std::string plan_path = request->Text("plan");
  RunViewOptions options;
  options.ranks = static_cast<std::uint32_t>(request->Number("ranks", 0));
  options.every_block = request->Flag("every_block");
  if (absl::Status status = request->Finish(); !status.ok()) return status;
  const absl::StatusOr<std::optional<Plan>> plan = ReadPlanOf(plan_path, timed_->traced.head.fingerprint);
  if (!plan.ok()) return plan.status();
  RankPlannerOptions analysis;
  analysis.plan = false;
  RankPlanner planner(timed_->traced, analysis);
  if (absl::Status status = planner.Analyse(); !status.ok()) {
    return absl::Status(status.code(), absl::StrCat(traces_.path, ": ", status.message()));
  }
  options.plan = plan->has_value() ? &**plan : nullptr;
  options.uses = &timed_->uses;
  if (beside_.has_value()) options.other = OtherRun{&beside_->traced, &beside_->clock, traces_.ratio};
  return RunViewJson(planner.Finish({}).report, timed_->traced, timed_->clock, options);
}

// What a search begins with, of each device.
absl::StatusOr<std::string> Session::Traced(JsonObject* request) {
  const double bus = request->Number("bus", 25e9);
  const bool candidates = request->Flag("candidates");
  if (absl::Status status = request->Finish(); !status.ok()) return status;
  JsonWriter json(JsonWriter::Style::kLine);
  json.BeginObject().Key("devices").BeginArray();
  for (std::size_t i = 0; i < devices_.size(); ++i) {
    const absl::StatusOr<Device*> found = DeviceAt(i);
    if (!found.ok()) return found.status();
    const Device& device = **found;
    json.BeginObject().Key("device").Value(device.facts.device.device);
    json.Key("peak").Value(PeakLiveBytes(device.facts.device));
    json.Key("step_ns").Value(FindStepTimes(device.facts, timed_->traced.segmentation).step_ns);
    WriteLayers(device.units, &json);
    WriteScaling(FindScaling(device.facts, device.parts), &json);
    json.NumberOrNull("other_peak", device.other_peak);
    if (candidates) WriteCandidates(device.SearchOf(bus, {}).Candidates(device.parts, 1), &json);
    WriteGraphPools(device.facts, &json);
    json.EndObject();
  }
  json.EndArray().Key("truncation").Value(timed_->traced.head.truncation).EndObject();
  return json.Take();
}

TracedTimes Session::TimesOf(const Device& device) const {
  const StepTimes times = FindStepTimes(device.facts, timed_->traced.segmentation);
  TracedTimes found;
  found.rest = static_cast<double>(std::max<std::int64_t>(0, times.step_ns - times.passes_ns)) / 1e9;
  found.passes = static_cast<double>(times.passes_ns) / 1e9;
  found.ratio = traces_.ratio;
  found.layers.push_back({TimesOfLayers(device.units), {}});
  for (const DeviceTrace& other : beside_.has_value() ? beside_->traced.devices : std::vector<DeviceTrace>{}) {
    if (other.device != device.facts.device.device) continue;
    const DeviceFacts facts(beside_->traced, other, beside_->clock);
    found.other_passes = static_cast<double>(FindStepTimes(facts, beside_->traced.segmentation).passes_ns) / 1e9;
    found.layers.push_back({TimesOfLayers(LayerUnits(facts)), {}});
  }
  return found;
}

// How long steps take, from both traces and what lies next to them: for later requests.
absl::StatusOr<std::string> Session::Cost(JsonObject* request) {
  const absl::StatusOr<Device*> device = DeviceOf(request);
  if (!device.ok()) return device.status();
  const bool of_length = request->Flag("of_length");
  RunFiles files{traces_.path,
                 traces_.beside,
                 traces_.ratio,
                 request->Number("rows", 1),
                 request->Number("micro_batches", 1),
                 request->Flag("packed")};
  if (absl::Status status = request->Finish(); !status.ok()) return status;
  const absl::StatusOr<StepsOfRun> steps = ReadStepsOfRun(files);
  if (!steps.ok()) return steps.status();
  TracedTimes times = TimesOf(**device);
  times.micro_batches = files.micro_batches;
  times.of_length = of_length;
  times.watched = WatchedIn(steps->traces);
  for (std::size_t i = 0; i < steps->traces.size(); ++i) {
    const TracedSteps& of_trace = steps->traces[i];
    times.free.insert(times.free.end(), of_trace.free.begin(), of_trace.free.end());
    if (i < times.layers.size()) times.layers[i].second = of_trace.iterations;
  }
  (*device)->cost.emplace(times);
  JsonWriter json(JsonWriter::Style::kLine);
  json.BeginObject().Key("together").Value(steps->together).Key("usual").Value(steps->usual).EndObject();
  return json.Take();
}

// For steps with these loads, all with one choice.
absl::StatusOr<std::string> Session::Seconds(JsonObject* request) {
  const absl::StatusOr<Device*> device = DeviceOf(request);
  if (!device.ok()) return device.status();
  const absl::StatusOr<UnitChoice> choice = (*device)->TakeChoice({}, request);
  const double bus = request->Number("bus", 25e9);
  std::vector<Load> loads;
  for (JsonObject& each : request->Objects("loads")) loads.push_back(TakeLoad(&each));
  absl::Status status = request->Finish();
  status.Update(choice.status());
  if (status.ok() && !(*device)->cost.has_value()) status = absl::FailedPreconditionError("seconds come after a cost");
  if (!status.ok()) return status;
  const ChoiceSeconds seconds = (*device)->SecondsOf(*choice, (*device)->SearchOf(bus, {}));
  JsonWriter json(JsonWriter::Style::kLine);
  json.BeginObject();
  json.Objects("steps", loads, [&](const Load& load) { (*device)->WriteSeconds(load, seconds, &json); });
  json.EndObject();
  return json.Take();
}

// For each of "sizes" by itself; those run side by side.
absl::StatusOr<std::string> Session::Search(JsonObject* request) {
  const absl::StatusOr<Device*> device = DeviceOf(request);
  if (!device.ok()) return device.status();
  const double bus = request->Number("bus", 25e9);
  const Bytes memory = TakeBytes("memory", request);
  const Bytes graphs = TakeBytes("graphs_memory", request);
  const Bytes host = TakeBytes("host_memory", request);
  std::vector<MicroBatches> sizes;
  std::vector<std::optional<Load>> loads;
  for (JsonObject& each : request->Objects("sizes")) {
    sizes.push_back(TakeMicroBatches(&each));
    JsonObject load = each.Object("load");
    loads.push_back(each.Has("load") && (*device)->cost.has_value() ? std::optional(TakeLoad(&load)) : std::nullopt);
    absl::Status status = each.Finish();
    status.Update(load.Finish());
    status.Update(CheckMicroBatches(sizes.back()));
    if (!status.ok()) return status;
  }
  if (absl::Status status = request->Finish(); !status.ok()) return status;
  std::vector<std::string> answers(sizes.size());
  TaskQueue tasks;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    tasks.PushBack([&, i] {
      const std::vector<BlockPart> parts = (*device)->PartsOf(sizes[i]);
      const FitSearch search = (*device)->SearchOf(bus, sizes[i], host);
      const EditedPeak untouched = (*device)->player.Play({}, SizesAt(parts, sizes[i].scale));
      JsonWriter json(JsonWriter::Style::kLine);
      const FitResult found = search.FindWithGraphs(memory, graphs, parts, sizes[i].scale);
      json.BeginObject();
      WriteResult(found, untouched, (*device)->units, &json);
      if (loads[i].has_value()) (*device)->WriteSeconds(*loads[i], (*device)->SecondsOf(found.choice, search), &json);
      json.EndObject();
      answers[i] = json.Take();
      answers[i].pop_back();
    });
  }
  tasks.Run(Threads());
  return absl::StrCat("{\"results\": [", absl::StrJoin(answers, ", "), "]}\n");
}

absl::StatusOr<std::string> Session::Play(JsonObject* request) {
  const absl::StatusOr<Device*> device = DeviceOf(request);
  if (!device.ok()) return device.status();
  const MicroBatches sizes = TakeMicroBatches(request);
  const absl::StatusOr<UnitChoice> choice = (*device)->TakeChoice(sizes, request);
  absl::Status status = request->Finish();
  status.Update(choice.status());
  status.Update(CheckMicroBatches(sizes));
  if (!status.ok()) return status;
  const std::vector<Bytes> bytes = SizesAt((*device)->PartsOf(sizes), sizes.scale);
  JsonWriter json(JsonWriter::Style::kLine);
  WritePeak((*device)->player.Play((*device)->units.EditOf(*choice), bytes), (*device)->facts, &json);
  return json.Take();
}

// The edited run goes through the planner; without "plans" it gives only what PyTorch's allocators would hold.
absl::StatusOr<std::string> Session::PlanChoice(JsonObject* request) {
  const absl::StatusOr<Device*> found = DeviceOf(request);
  if (!found.ok()) return found.status();
  const Device& device = **found;
  const MicroBatches sizes = TakeMicroBatches(request);
  const absl::StatusOr<UnitChoice> choice = device.TakeChoice(sizes, request);
  const bool plans = request->Flag("plans");
  const double seconds = request->Number("time_limit", kDefaultPackingSeconds);
  absl::Status status = request->Finish();
  status.Update(choice.status());
  status.Update(CheckMicroBatches(sizes));
  if (status.ok()) status.Update(ReadEvents());
  if (!status.ok()) return status;
  const std::vector<Bytes> bytes =
      sizes.as_traced() ? std::vector<Bytes>{} : SizesAt(device.PartsOf(sizes), sizes.scale);
  const absl::StatusOr<RankResult> result =
      PlanEdited(EditTrace(*trace_, device.facts.device, device.units.EditOf(*choice), bytes), plans, seconds);
  if (!result.ok()) {
    return absl::Status(result.status().code(),
                        absl::StrCat("the edited trace cannot be planned: ", result.status().message()));
  }
  for (const DeviceReport& report : result->report.devices) {
    if (report.device != device.facts.device.device) continue;
    const Bytes expandable = report.simulated.expandable_bytes;
    JsonWriter json(JsonWriter::Style::kLine);
    json.BeginObject().Key("live").Value(report.peak.live_bytes).Key("held").BeginObject();
    json.Key("expandable").Value(expandable).Key("native").Value(report.simulated.native_bytes);
    // What cannot be planned is served by PyTorch's allocator below.
    if (plans) json.Key("stalloc").Value(report.packing.has_value() ? report.packing->held_bytes : expandable);
    json.EndObject().EndObject();
    return json.Take();
  }
  return absl::InternalError("the edited trace has no allocation on the device");
}

}  // namespace stalloc::planner
