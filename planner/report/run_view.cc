#include "planner/report/run_view.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <vector>

#include "planner/report/block_tables.h"
#include "planner/report/graph_pools.h"
#include "planner/report/growth.h"
#include "planner/report/iteration_table.h"
#include "planner/report/json_writer.h"
#include "planner/report/live_series.h"
#include "planner/report/plan_map.h"
#include "planner/report/rank_json.h"
#include "planner/report/span_tables.h"
#include "planner/report/unused_spans.h"
#include "planner/report/worth_text.h"
#include "planner/whatif/alternatives.h"
#include "planner/whatif/micro_batch_fit.h"
#include "planner/whatif/scaling.h"

namespace stalloc::planner {
namespace {

constexpr std::size_t kStretches = 1500;
constexpr std::size_t kHeldPoints = 2000;
constexpr std::uint64_t kNear = kStretches / 2;  // events before and after the peak, each drawn
constexpr std::size_t kPeakGroupsInView = 5000;
constexpr std::size_t kTopGroups = 250;
constexpr std::size_t kUnusedGroups = 25;
constexpr std::size_t kPhaseRows = 5000;
constexpr std::size_t kNamesOfBlock = 10'000;
constexpr std::size_t kStackTexts = 2000;  // of one or two KiB each

class ViewWriter {
 public:
  ViewWriter(const DeviceFacts& facts, JsonWriter* json) : facts_(facts), json_(*json) {}

  // `fit` and `plan` may be null.
  void Write(const TracedRank& traced, const BlockUses& uses, std::uint32_t ranks, const MicroBatchFit* fit,
             const DevicePlan* plan, bool every_block, const std::string& worth) {
    json_.BeginObject().Key("device").Value(facts_.device.device).Key("worth").Value(worth);
    json_.Key("events").Value(facts_.events).Key("end_ns").Value(facts_.clock.end_ns());
    json_.List("roles", facts_.roles);
    json_.List("layers", facts_.layers.names());
    WritePhases();
    const PeakView peak = GroupPeak(facts_, kPeakGroupsInView);
    json_.Key("timeline");
    WriteSeries(SampleLive(facts_, 0, facts_.events, kStretches));
    json_.Key("peak_timeline");
    WriteSeries(AroundPeak(peak.event));
    json_.Key("near_peak");
    WriteSeries(SampleLive(facts_, peak.event - std::min(peak.event, kNear),
                           std::min(facts_.events, peak.event + kNear), kStretches));
    WriteHeld();
    WritePeak(peak);
    WriteTop();
    WriteUnused(uses, traced.head.texts);
    WriteGrowth(traced.segmentation);
    json_.Key("blocks");
    every_block ? WriteBlocks() : void(json_.Null());
    WriteStacks();
    WriteLayers();
    WriteAlternatives(ranks);
    WriteScaling(fit);
    WriteIterations(traced.segmentation);
    WriteGraphPools();
    json_.Key("plan");
    plan == nullptr ? void(json_.Null()) : WritePlan(*plan);
    json_.EndObject();
  }

 private:
  template <typename Rows, typename Value>
  void Column(const char* key, const Rows& rows, const Value& value) {
    json_.Column(key, rows, value);
  }

  [[nodiscard]] std::int64_t TimeOf(std::uint64_t event) const {
    return event < facts_.clock.time_ns.size() ? facts_.clock.time_ns[event] : facts_.clock.end_ns();
  }

  // The segment that holds it: an iteration, or the set-up.
  [[nodiscard]] std::vector<LivePoint> AroundPeak(std::uint64_t event) const {
    const std::vector<PhaseSpan>& spans = facts_.phases.spans();
    const std::uint32_t segment = spans[facts_.phases.At(event)].segment;
    const auto first =
        std::find_if(spans.begin(), spans.end(), [&](const PhaseSpan& s) { return s.segment == segment; });
    const auto next = std::find_if(first, spans.end(), [&](const PhaseSpan& s) { return s.segment != segment; });
    const std::uint64_t end = next == spans.end() ? facts_.events : next->begin_event;
    return SampleLive(facts_, first->begin_event, end, kStretches);
  }

  void WriteSeries(const std::vector<LivePoint>& points) {
    json_.BeginObject();
    Column("event", points, [](const LivePoint& point) { return point.event; });
    Column("ns", points, [&](const LivePoint& point) { return TimeOf(point.event); });
    json_.Key("by_class").BeginArray();
    for (std::size_t c = 0; c < kMemoryClasses; ++c) {
      json_.BeginArray();
      for (const LivePoint& point : points) json_.Value(point.by_class[c]);
      json_.EndArray();
    }
    json_.EndArray().EndObject();
  }

  void WriteHeld() {
    const std::vector<HeldPoint> points = SampleHeld(facts_, kHeldPoints);
    json_.Key("held").BeginObject();
    Column("event", points, [](const HeldPoint& point) { return point.event; });
    Column("ns", points, [&](const HeldPoint& point) { return TimeOf(point.event); });
    Column("bytes", points, [](const HeldPoint& point) { return point.held; });
    json_.EndObject();
  }

  // Phases that the peak's groups and the timeline name by index; the rows of very long runs are cut off.
  void WritePhases() {
    std::vector<PhaseRow> rows = TabulatePhases(facts_);
    const std::size_t all = rows.size();
    rows.resize(std::min(all, kPhaseRows));
    const std::vector<PhaseSpan> spans(facts_.phases.spans().begin(),
                                       facts_.phases.spans().begin() + static_cast<std::ptrdiff_t>(rows.size()));
    json_.Key("phases").BeginObject().Key("omitted").Value(all - rows.size());
    Column("name", spans, [](const PhaseSpan& span) { return std::string_view(span.name); });
    Column("segment", spans, [](const PhaseSpan& span) { return span.segment; });
    Column("event", spans, [](const PhaseSpan& span) { return span.begin_event; });
    Column("ns", rows, [](const PhaseRow& row) { return row.begin_ns; });
    Column("begin_live", rows, [](const PhaseRow& row) { return row.begin_live; });
    Column("peak_live", rows, [](const PhaseRow& row) { return row.peak_live; });
    Column("end_live", rows, [](const PhaseRow& row) { return row.end_live; });
    Column("spike", rows, [](const PhaseRow& row) { return row.spike(); });
    Column("requests", rows, [](const PhaseRow& row) { return row.requests; });
    Column("requested", rows, [](const PhaseRow& row) { return row.requested; });
    json_.Lists(
        "begin_by_class", rows, [](const PhaseRow& row) -> const auto& { return row.begin_by_class; });
    json_.EndObject();
  }

  void WritePeak(const PeakView& peak) {
    const auto phase = [&](std::uint32_t span) {
      return span == kNone ? std::string_view() : std::string_view(facts_.phases.spans()[span].name);
    };
    json_.Key("peak").BeginObject();
    json_.Key("live_bytes").Value(peak.live_bytes).Key("event").Value(peak.event).Key("ns").Value(TimeOf(peak.event));
    json_.Key("at_phase").Value(phase(static_cast<std::uint32_t>(facts_.phases.At(peak.event))));
    json_.Key("omitted_bytes").Value(peak.omitted_bytes).Key("omitted_blocks").Value(peak.omitted_blocks);
    Column("bytes", peak.groups, [](const PeakGroup& group) { return group.bytes; });
    Column("count", peak.groups, [](const PeakGroup& group) { return group.count; });
    Column("class", peak.groups, [](const PeakGroup& group) { return static_cast<int>(group.fact.memory_class); });
    Column("layer", peak.groups, [](const PeakGroup& group) { return group.fact.layer; });
    Column("phase", peak.groups, [&](const PeakGroup& group) { return phase(group.fact.phase); });
    Column("freed_in", peak.groups, [&](const PeakGroup& group) { return phase(group.fact.free_phase); });
    Column("role", peak.groups, [&](const PeakGroup& group) { return facts_.role_of[group.fact.phase]; });
    Column("stream", peak.groups, [](const PeakGroup& group) { return group.stream; });
    Column("tensor", peak.groups, [](const PeakGroup& group) { return TensorRoleName(group.fact.role); });
    Column("name", peak.groups, [&](const PeakGroup& group) { return facts_.names.Text(group.fact.names); });
    Column("tensors", peak.groups, [](const PeakGroup& group) { return group.fact.names.count; });
    Column("names", peak.groups, [&](const PeakGroup& group) {
      return group.fact.names.count > 1 ? facts_.names.Lines(group.allocation, kNamesOfBlock) : std::string();
    });
    Column("stack", peak.groups, [&](const PeakGroup& group) { return stacks_.Of(group.fact.stack); });
    Column("request", peak.groups, [](const PeakGroup& group) { return group.first_request; });
    json_.EndObject();
  }

  void WriteTop() {
    const TopView top = TopGroups(facts_, kTopGroups);
    const std::vector<RunGroup>& groups = top.groups;
    json_.Key("top_blocks").BeginObject().Key("all_byte_seconds").Value(top.all_byte_seconds);
    Column("bytes", groups, [](const RunGroup& group) { return group.bytes; });
    Column("count", groups, [](const RunGroup& group) { return group.count; });
    Column("class", groups, [](const RunGroup& group) { return static_cast<int>(group.memory_class); });
    Column("role", groups, [](const RunGroup& group) { return group.role; });
    Column("layer", groups, [](const RunGroup& group) { return group.layer; });
    Column("name", groups, [&](const RunGroup& group) { return facts_.names.Text(group.names); });
    Column("tensors", groups, [](const RunGroup& group) { return group.names.count; });
    Column("stack", groups, [&](const RunGroup& group) { return stacks_.Of(group.stack); });
    Column("longest_ns", groups, [](const RunGroup& group) { return group.longest_ns; });
    Column("byte_seconds", groups, [](const RunGroup& group) { return group.byte_seconds; });
    json_.EndObject();
  }

  // Null where the trace has no uses.
  void WriteUnused(const BlockUses& uses, const std::vector<std::string>& texts) {
    json_.Key("unused");
    if (uses.empty()) {
      json_.Null();
      return;
    }
    const UnusedView view = ViewUnused(facts_, uses, kUnusedGroups);
    const std::vector<UnusedGroup>& groups = view.groups;
    const auto fact = [&](const UnusedGroup& group) -> const BlockFact& { return facts_.blocks[group.block]; };
    const auto text = [&](std::uint32_t number) {
      return number < texts.size() ? std::string_view(texts[number]) : std::string_view();
    };
    json_.BeginObject().Key("least_events").Value(view.least.moved).Key("least_idle_events").Value(view.least.idle);
    json_.Key("unseen_blocks").Value(view.unseen_blocks).Key("unseen_at_peak").Value(view.unseen_at_peak);
    json_.Key("early_peak").Value(view.early_peak).Key("late_peak").Value(view.late_peak);
    json_.Key("early_and_late_peak").Value(view.early_and_late_peak);
    json_.Key("idle_peak").Value(view.idle_peak).Key("idle_moved").Value(view.idle_moved);
    Column("kind", groups, [](const UnusedGroup& group) { return UnusedKindName(group.kind); });
    Column("bytes", groups, [&](const UnusedGroup& group) { return facts_.device.allocations[group.block].bytes; });
    Column("count", groups, [](const UnusedGroup& group) { return group.count; });
    Column("class", groups, [&](const UnusedGroup& group) { return static_cast<int>(fact(group).memory_class); });
    Column("role", groups, [&](const UnusedGroup& group) { return facts_.role_of[fact(group).phase]; });
    Column("layer", groups, [&](const UnusedGroup& group) { return fact(group).layer; });
    Column("layers", groups, [](const UnusedGroup& group) { return group.layers; });
    Column("name", groups, [&](const UnusedGroup& group) { return facts_.names.Text(fact(group).names); });
    Column("stack", groups, [&](const UnusedGroup& group) { return stacks_.Of(fact(group).stack); });
    Column("before", groups, [&](const UnusedGroup& group) { return text(group.before); });
    Column("after", groups, [&](const UnusedGroup& group) { return text(group.after); });
    Column("events", groups, [](const UnusedGroup& group) { return group.events; });
    Column("ns", groups, [](const UnusedGroup& group) { return group.ns; });
    Column("byte_seconds", groups, [](const UnusedGroup& group) { return group.byte_seconds; });
    Column("at_peak", groups, [](const UnusedGroup& group) { return group.at_peak; });
    Column("peak", groups, [](const UnusedGroup& group) { return group.peak; });
    json_.EndObject();
  }

  // Those that the tables above name.
  void WriteStacks() {
    json_.Key("stacks").BeginObject();
    Column("call_site", stacks_.stacks(), [&](std::uint32_t stack) { return facts_.calls.Site(stack); });
    std::size_t written = 0;
    Column("calls", stacks_.stacks(), [&](std::uint32_t stack) {
      return written++ < kStackTexts ? facts_.calls.Stack(stack) : facts_.calls.Site(stack);
    });
    json_.EndObject();
  }

  void WriteLayers() {
    const std::vector<LayerRow> rows = TabulateLayers(facts_);
    json_.Key("layer_table").BeginObject();
    Column("layer", rows, [](const LayerRow& row) { return row.name; });
    Column("pass", rows, [](const LayerRow& row) {
      return row.pass == Pass::kForward ? "F" : row.pass == Pass::kBackward ? "B" : "";
    });
    Column("visits", rows, [](const LayerRow& row) { return row.visits; });
    Column("peak_live", rows, [](const LayerRow& row) { return row.peak_live; });
    json_.Lists(
        "peak_by_class", rows, [](const LayerRow& row) -> const auto& { return row.peak_by_class; });
    Column("most_rise", rows, [](const LayerRow& row) { return row.most_rise; });
    Column("most_spike", rows, [](const LayerRow& row) { return row.most_spike; });
    Column("most_net", rows, [](const LayerRow& row) { return row.most_net; });
    Column("requests", rows, [](const LayerRow& row) { return row.requests; });
    Column("requested", rows, [](const LayerRow& row) { return row.requested; });
    Column("ns", rows, [](const LayerRow& row) { return row.ns; });
    json_.EndObject();
  }

  void WriteAlternatives(std::uint32_t ranks) {
    const std::vector<Alternative> found = FindAlternatives(facts_, ranks);
    json_.Key("alternatives").BeginObject();
    Column("kind", found, [](const Alternative& row) { return AlternativeName(row.kind); });
    Column("layers", found, [](const Alternative& row) { return std::string_view(row.layers); });
    Column("late", found,
           [](const Alternative& row) { return row.kind == AlternativeKind::kFreeLate ? LateKindName(row.late) : ""; });
    Column("role", found, [](const Alternative& row) { return row.role; });
    Column("bytes", found, [](const Alternative& row) { return row.bytes; });
    Column("at_least", found, [](const Alternative& row) { return row.at_least; });
    Column("leaves", found, [](const Alternative& row) { return row.leaves; });
    Column("keep", found, [](const Alternative& row) { return row.keep; });
    Column("at_peak", found, [](const Alternative& row) { return row.at_peak; });
    Column("moved", found, [](const Alternative& row) { return row.moved; });
    Column("peak", found, [](const Alternative& row) { return row.peak; });
    json_.EndObject();
  }

  void WriteScaling(const MicroBatchFit* fit) {
    const std::vector<ScalingPoint> points = FindScaling(facts_, fit == nullptr ? PartsByClass(facts_) : fit->parts);
    json_.Key("scaling").BeginObject();
    Column("fixed", points, [](const ScalingPoint& point) { return point.fixed; });
    Column("scaling", points, [](const ScalingPoint& point) { return point.scaling; });
    Column("square", points, [](const ScalingPoint& point) { return point.square; });
    json_.EndObject().Key("fit");
    if (fit == nullptr) {
      json_.Null();
      return;
    }
    json_.BeginObject().Key("unpaired_bytes").Value(fit->unpaired_bytes);
    json_.Key("fixed_bytes").Value(fit->fixed_bytes).Key("proportional_bytes").Value(fit->proportional_bytes);
    json_.Key("affine_bytes").Value(fit->affine_bytes).Key("square_bytes").Value(fit->square_bytes);
    json_.Key("other_peak_bytes").Value(fit->other_peak_bytes);
    json_.EndObject();
  }

  void WriteGrowth(const Segmentation& segmentation) {
    const Growth growth = FindGrowth(facts_, segmentation, kTopGroups);
    json_.Key("growth").BeginObject();
    Column("iteration", segmentation.segments, [](const Segment& segment) { return segment.index; });
    Column("begin_live", growth.begin_live, [](Bytes bytes) { return bytes; });
    const auto fact = [&](const Leak& leak) -> const BlockFact& { return facts_.blocks[leak.allocation]; };
    json_.Key("needed_iterations").Value(kLeakIterations);
    json_.Key("inside");
    if (growth.inside.has_value()) {
      json_.BeginObject().Key("bytes").Value(growth.inside->bytes).Key("blocks").Value(growth.inside->blocks);
      json_.Key("stack").Value(stacks_.Of(facts_.blocks[growth.inside->allocation].stack)).EndObject();
    } else {
      json_.Null();
    }
    Column("least_bytes", growth.leaks, [](const Leak& leak) { return leak.least_bytes; });
    Column("most_bytes", growth.leaks, [](const Leak& leak) { return leak.most_bytes; });
    Column("class", growth.leaks, [&](const Leak& leak) { return static_cast<int>(fact(leak).memory_class); });
    Column("role", growth.leaks, [&](const Leak& leak) { return facts_.role_of[fact(leak).phase]; });
    Column("layer", growth.leaks, [&](const Leak& leak) { return fact(leak).layer; });
    Column("stack", growth.leaks, [&](const Leak& leak) { return stacks_.Of(fact(leak).stack); });
    Column("since", growth.leaks, [&](const Leak& leak) { return segmentation.segments[leak.since].index; });
    Column("blocks_per_iteration", growth.leaks, [](const Leak& leak) { return leak.blocks; });
    Column("bytes_per_iteration", growth.leaks, [](const Leak& leak) { return leak.bytes; });
    json_.Lists(
        "live", growth.leaks, [](const Leak& leak) -> const auto& { return leak.live; });
    json_.EndObject();
  }

  void WriteIterations(const Segmentation& segmentation) {
    const std::vector<IterationRow> rows = TabulateIterations(facts_);
    json_.Key("iterations").BeginObject();
    Column("iteration", segmentation.segments, [](const Segment& segment) { return segment.index; });
    Column("peak_live", rows, [](const IterationRow& row) { return row.peak_live; });
    Column("dynamic_peak", rows, [](const IterationRow& row) { return row.dynamic_peak; });
    Column("dynamic_requested", rows, [](const IterationRow& row) { return row.dynamic_requested; });
    json_.EndObject();
  }

  // Null where nothing is captured.
  void WriteGraphPools() {
    const GraphPools found = FindGraphPools(facts_);
    json_.Key("graph_pools");
    if (found.pools.empty()) {
      json_.Null();
      return;
    }
    json_.BeginObject().Key("held").Value(found.held).Key("live_then").Value(found.live_then);
    json_.Key("event").Value(found.event);
    Column("pool", found.pools, [](const GraphPool& pool) { return pool.pool_plus_one; });
    Column("role", found.pools, [](const GraphPool& pool) { return pool.role; });
    Column("requests", found.pools, [](const GraphPool& pool) { return pool.requests; });
    Column("most", found.pools, [](const GraphPool& pool) { return pool.most; });
    Column("end", found.pools, [](const GraphPool& pool) { return pool.end; });
    Column("idle_then", found.pools, [](const GraphPool& pool) { return pool.idle_then; });
    json_.EndObject();
  }

  // By event of the allocation, which numbers it as the events of a dump do.
  void WriteBlocks() {
    json_.BeginObject();
    Column("event", facts_.device.allocations, [](const Allocation& allocation) { return allocation.event; });
    Column("class", facts_.blocks, [](const BlockFact& block) { return static_cast<int>(block.memory_class); });
    Column("layer", facts_.blocks, [](const BlockFact& block) { return block.layer; });
    Column("requested", facts_.device.allocations, [](const Allocation& block) { return block.requested(); });
    Column("stack", facts_.blocks, [&](const BlockFact& block) { return stacks_.Of(block.stack); });
    Column("name", facts_.blocks, [&](const BlockFact& block) { return facts_.names.Text(block.names); });
    Column("tensor", facts_.blocks, [](const BlockFact& block) { return TensorRoleName(block.role); });
    json_.Key("names").BeginArray();
    for (std::uint32_t block = 0; block < facts_.blocks.size(); ++block) {
      json_.Value(facts_.blocks[block].names.count > 1 ? facts_.names.Lines(block, kNamesOfBlock) : std::string());
    }
    json_.EndArray().EndObject();
  }

  void WritePlan(const DevicePlan& plan) {
    const PlanMap map = DrawPlan(plan, facts_);
    json_.BeginObject().Key("arena_bytes").Value(plan.arena_bytes);
    json_.Key("lower_bound_bytes").Value(plan.predicted.lower_bound_bytes);
    json_.Key("upstream_bytes").Value(plan.predicted.upstream_peak_bytes);
    json_.Key("efficiency").Value(plan.predicted.efficiency);
    json_.Key("slots").Value(map.slots).Key("idle_share").Value(map.idle_share);
    json_.Key("map").BeginObject();
    json_.Key("columns").Value(map.columns).Key("rows").Value(map.rows);
    json_.Key("positions").Value(map.positions).Key("cycle_begin").Value(map.cycle_begin);
    json_.Key("classes").Value(map.classes).Key("fullness").Value(map.fullness);
    Column("planned", map.planned, [](Bytes bytes) { return bytes; });
    Column("unplanned", map.unplanned, [](Bytes bytes) { return bytes; });
    json_.Key("phases").BeginObject();
    Column("position", map.phases, [](const PlanMap::Phase& phase) { return phase.position; });
    Column("name", map.phases, [](const PlanMap::Phase& phase) { return std::string_view(phase.name); });
    json_.EndObject().EndObject().EndObject();
  }

  const DeviceFacts& facts_;
  JsonWriter& json_;
  StackIndex stacks_;
};

const DevicePlan* PlanOf(const Plan* plan, DeviceIndex device) {
  if (plan == nullptr) return nullptr;
  const auto found = std::find_if(plan->devices.begin(), plan->devices.end(),
                                  [&](const DevicePlan& candidate) { return candidate.device == device; });
  return found == plan->devices.end() ? nullptr : &*found;
}

std::string WorthOf(const RankReport& report, DeviceIndex device, const DevicePlan* plan) {
  const auto found = std::find_if(report.devices.begin(), report.devices.end(),
                                  [&](const DeviceReport& each) { return each.device == device; });
  return found == report.devices.end() ? "" : WorthText(*found, plan, report.fingerprint.device_bytes);
}

std::optional<MicroBatchFit> FitTo(const DeviceFacts& facts, const std::optional<OtherRun>& other) {
  if (!other.has_value()) return std::nullopt;
  for (const DeviceTrace& device : other->traced->devices) {
    if (device.device != facts.device.device) continue;
    return FitMicroBatch(facts, DeviceFacts(*other->traced, device, *other->clock), other->ratio);
  }
  return std::nullopt;
}

}  // namespace

std::string RunViewJson(const RankReport& report, const TracedRank& traced, const TraceClock& clock,
                        const RunViewOptions& options) {
  JsonWriter json(JsonWriter::Style::kLine);
  json.BeginObject().BeginObject("rank");
  WriteRankJson(report, &json);
  json.EndObject().Key("classes").BeginArray();
  for (std::size_t c = 0; c < kMemoryClasses; ++c) json.Value(MemoryClassName(static_cast<MemoryClass>(c)));
  json.EndArray().Key("devices").BeginArray();
  const std::vector<BlockUse> none;
  const std::vector<BlockUse>& recorded = options.uses == nullptr ? none : *options.uses;
  for (const DeviceTrace& device : traced.devices) {
    const DeviceFacts facts(traced, device, clock);
    const std::optional<MicroBatchFit> fit = FitTo(facts, options.other);
    const std::uint32_t ranks = options.ranks == 0 ? traced.head.fingerprint.world_size : options.ranks;
    const BlockUses uses(traced, device, recorded);
    const DevicePlan* const plan = PlanOf(options.plan, device.device);
    ViewWriter(facts, &json)
        .Write(traced, uses, ranks, fit ? &*fit : nullptr, plan, options.every_block,
               WorthOf(report, device.device, plan));
  }
  json.EndArray().EndObject();
  return json.Take();
}

}  // namespace stalloc::planner
