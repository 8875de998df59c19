#include "planner/report/rank_json.h"

#include <cstddef>

namespace stalloc::planner {
namespace {

void WriteStrings(const char* key, const std::vector<std::string>& strings, JsonWriter* json) {
  json->Key(key).BeginArray();
  for (const std::string& text : strings) {
    json->Value(text);
  }
  json->EndArray();
}

void WriteFingerprint(const Fingerprint& fingerprint, JsonWriter* json) {
  json->Key("fingerprint").BeginObject();
  json->Key("torch_version").Value(fingerprint.torch_version);
  json->Key("device_name").Value(fingerprint.device_name);
  json->Key("device_bytes").Value(fingerprint.device_bytes);
  json->Key("driver_version").Value(fingerprint.driver_version);
  json->Key("world_size").Value(fingerprint.world_size);
  json->Key("rank").Value(fingerprint.rank);
  json->Key("local_rank").Value(fingerprint.local_rank);
  WriteStrings("command_line", fingerprint.command_line, json);
  json->Key("stalloc_version").Value(fingerprint.stalloc_version);
  json->Key("trace_mode").Value(fingerprint.trace_mode);
  json->EndObject();
}

void WriteMarks(const MarkCensus& census, JsonWriter* json) {
  json->Key("marks").BeginObject();
  json->Key("iterations").Value(census.iterations);
  json->Key("automatic_iterations").Value(census.automatic_iterations);
  json->Key("microbatches").Value(census.microbatches);
  json->Key("optimizers").Value(census.optimizers);
  json->Key("layers").Value(census.layers);
  json->Key("fences").Value(census.fences);
  json->EndObject();
}

void WritePeakBlocks(const std::vector<PeakBlock>& blocks, JsonWriter* json) {
  json->Key("largest_blocks").BeginArray();
  for (const PeakBlock& block : blocks) {
    json->BeginObject();
    json->Key("bytes").Value(block.bytes);
    json->Key("class").Value(MemoryClassName(block.memory_class));
    json->Key("tensor").Value(TensorRoleName(block.role));
    json->Key("segment").Value(block.segment);
    json->Key("request").Value(block.ordinal);
    json->Key("stream").Value(block.stream);
    json->Key("allocated_in").Value(block.allocated_in);
    json->Key("freed_in");
    block.freed_in.empty() ? json->Null() : json->Value(block.freed_in);
    json->Key("life_requests").Value(block.life_requests);
    json->EndObject();
  }
  json->EndArray();
}

void WritePeakPhases(const std::vector<PeakPhase>& phases, JsonWriter* json) {
  json->Key("by_phase").BeginArray();
  for (const PeakPhase& phase : phases) {
    json->BeginObject().Key("phase").Value(phase.phase).Key("bytes").Value(phase.bytes);
    json->Key("blocks").Value(phase.blocks).EndObject();
  }
  json->EndArray();
}

void WritePeak(const PeakReport& peak, JsonWriter* json) {
  json->Key("peak").BeginObject();
  json->Key("live_bytes").Value(peak.live_bytes);
  json->Key("segment").Value(peak.segment);
  json->Key("request").Value(peak.ordinal);
  json->Key("phase").Value(peak.phase);
  json->Key("inside_fence").Value(peak.fenced);
  json->Key("by_class").BeginObject();
  for (std::size_t i = 0; i < peak.by_memory_class.size(); ++i) {
    json->Key(MemoryClassName(static_cast<MemoryClass>(i))).Value(peak.by_memory_class[i]);
  }
  json->EndObject();
  json->Key("by_script").BeginObject();
  for (std::size_t i = 0; i < peak.by_class.size(); ++i) {
    json->Key(PeakClassName(static_cast<PeakClass>(i))).Value(peak.by_class[i]);
  }
  json->EndObject();
  WritePeakPhases(peak.phases, json);
  WritePeakBlocks(peak.blocks, json);
  json->EndObject();
}

void WritePhases(const std::vector<PhaseReport>& phases, JsonWriter* json) {
  json->Key("phases").BeginArray();
  for (const PhaseReport& phase : phases) {
    json->BeginObject().Key("segment").Value(phase.segment).Key("phase").Value(phase.name);
    json->Key("begin_live_bytes").Value(phase.begin_live_bytes);
    json->Key("peak_live_bytes").Value(phase.peak_live_bytes).EndObject();
  }
  json->EndArray();
}

void WriteSimulated(const DeviceReport& device, JsonWriter* json) {
  json->Key("simulated").BeginObject();
  json->Key("native_bytes").Value(device.simulated.native_bytes);
  json->Key("native_efficiency").Value(device.EfficiencyAt(device.simulated.native_bytes));
  json->Key("native_largest_first_bytes").Value(device.simulated.native_largest_first_bytes);
  json->Key("expandable_segments_bytes").Value(device.simulated.expandable_bytes);
  json->Key("expandable_segments_efficiency").Value(device.EfficiencyAt(device.simulated.expandable_bytes));
  json->EndObject();
}

void WriteGraphs(const DeviceReport& device, JsonWriter* json) {
  json->Key("graphs");
  if (!device.graphs.has_value()) {
    json->Null();
    return;
  }
  const GraphNeeds& needs = *device.graphs;
  json->BeginObject();
  json->Key("needed_bytes").Value(needs.peak);
  json->Key("live_then_bytes").Value(needs.torch_then);
  json->Key("event").Value(needs.event);
  json->Key("capture_bytes").Value(needs.capture_peak);
  json->Key("captured_in").Value(needs.last_segment);
  json->Key("traced_efficiency").Value(device.traced_device_efficiency());
  json->Key("lent_bytes").Value(device.packing.has_value() ? device.packing->lent_bytes : 0);
  json->Key("lent_requests").Value(device.packing.has_value() ? device.packing->lent_requests : 0);
  json->Key("graphs").BeginArray();
  for (const CapturedGraph& graph : needs.graphs) {
    json->BeginObject();
    json->Key("number").Value(graph.number);
    json->Key("pool").Value(graph.pool);
    json->Key("launches").Value(graph.launches);
    json->Key("dead_bytes").Value(graph.dead);
    json->Key("carried_bytes").Value(graph.carried);
    json->Key("kept_bytes").Value(graph.kept);
    json->Key("launch_bytes").Value(graph.launch);
    json->EndObject();
  }
  json->EndArray();
  json->EndObject();
}

void WriteReplay(const SegmentReplay& replay, JsonWriter* json) {
  json->Key("replay").BeginObject();
  json->Key("hits").Value(replay.hits);
  json->Key("occupied").Value(replay.occupied);
  json->Key("unplanned").Value(replay.unplanned);
  json->Key("unmatched").Value(replay.unmatched);
  json->Key("requests_over_block").Value(replay.requests_over_block);
  json->Key("hits_over_block").Value(replay.hits_over_block);
  json->EndObject();
}

void WriteSegments(const std::vector<SegmentReport>& segments, JsonWriter* json) {
  json->Key("segments").BeginArray();
  for (const SegmentReport& segment : segments) {
    json->BeginObject();
    json->Key("iteration").Value(segment.index);
    json->Key("requests").Value(segment.requests);
    json->Key("requested_bytes").Value(segment.requested_bytes);
    json->Key("peak_live_bytes").Value(segment.peak_live_bytes);
    json->Key("stability").Value(StabilityName(segment.stability));
    if (segment.replay.has_value()) {
      WriteReplay(*segment.replay, json);
    }
    json->EndObject();
  }
  json->EndArray();
}

void WriteStreams(const std::vector<StreamReport>& streams, JsonWriter* json) {
  json->Key("streams").BeginArray();
  for (const StreamReport& stream : streams) {
    json->BeginObject();
    json->Key("ordinal").Value(stream.stream.ordinal);
    json->Key("handle").Value(stream.stream.handle);
    json->Key("requests").Value(stream.requests);
    json->Key("bytes").Value(stream.bytes);
    json->Key("recorded_elsewhere").Value(stream.recorded);
    json->Key("main").Value(stream.main);
    json->EndObject();
  }
  json->EndArray();
}

void WritePredicted(const PackingReport& packing, JsonWriter* json) {
  const Predicted& predicted = packing.predicted;
  json->Key("predicted").BeginObject();
  json->Key("peak_live_bytes").Value(predicted.peak_live_bytes);
  json->Key("planned_peak_bytes").Value(predicted.planned_peak_bytes);
  json->Key("upstream_peak_bytes").Value(predicted.upstream_peak_bytes);
  json->Key("lower_bound_bytes").Value(predicted.lower_bound_bytes);
  json->Key("held_bytes").Value(packing.held_bytes);
  json->Key("efficiency").Value(predicted.efficiency);
  json->EndObject();
}

void WriteSpace(const PackingReport& packing, JsonWriter* json) {
  json->Key("idle_scatter").Value(packing.scatter);
  json->Key("stream_hand_overs").BeginArray();
  for (const StreamPair& pair : packing.hand_overs) {
    json->BeginObject();
    json->Key("from_stream").Value(pair.from_stream);
    json->Key("to_stream").Value(pair.to_stream);
    json->Key("hand_overs").Value(pair.hand_overs);
    json->Key("bytes").Value(pair.bytes).EndObject();
  }
  json->EndArray();
}

void WriteTrial(const TrialReport& trial, JsonWriter* json) {
  json->Key("trial").BeginObject();
  json->Key("held_out_iterations").BeginArray();
  for (const std::uint32_t iteration : trial.held_out) {
    json->Value(iteration);
  }
  json->EndArray();
  json->Key("candidates").BeginArray();
  for (std::size_t i = 0; i < trial.candidates.size(); ++i) {
    const TrialOutcome& outcome = trial.candidates[i];
    json->BeginObject();
    json->Key("slots").Value(SlotPolicyName(outcome.choice.policy));
    json->Key("headroom").Value(outcome.choice.headroom);
    json->Key("taken").Value(i == trial.taken);
    json->Key("served").Value(outcome.served);
    json->Key("held_bytes").Value(outcome.held_bytes());
    json->Key("efficiency").Value(outcome.efficiency());
    json->Key("peak_live_bytes").Value(outcome.peak_live_bytes);
    json->Key("planned_bytes").Value(outcome.plan_bytes);
    json->Key("arena_bytes").Value(outcome.arena_bytes);
    json->Key("upstream_bytes").Value(outcome.upstream_bytes);
    json->Key("requests").Value(outcome.requests);
    json->Key("slot_hits").Value(outcome.slot_hits);
    json->Key("dynamic_hits").Value(outcome.dynamic_hits);
    json->Key("times_moved").Value(outcome.times_moved);
    json->Key("seconds").Value(outcome.seconds).EndObject();
  }
  json->EndArray().EndObject();
}

void WritePacking(const PackingReport& packing, JsonWriter* json) {
  json->Key("plan").BeginObject();
  json->Key("solver").Value(packing.solver);
  json->Key("blocks").Value(packing.blocks);
  json->Key("arena_bytes").Value(packing.arena_bytes);
  json->Key("lower_bound_bytes").Value(packing.lower_bound_bytes);
  json->Key("ratio").Value(packing.ratio());
  json->Key("optimal").Value(packing.optimal());
  json->Key("seconds").Value(packing.seconds);
  json->Key("warmup_iterations").Value(packing.warmup);
  json->Key("period").Value(packing.period);
  json->Key("copies").Value(packing.copies);
  json->Key("turns").Value(packing.turns);
  json->Key("requests_of_several_places").Value(packing.several_places);
  json->Key("one_place_arena_bytes").Value(packing.one_place_bytes);
  json->Key("cycle_requests").BeginObject();
  for (std::size_t i = 0; i < packing.cycle.size(); ++i) {
    json->Key(UnplannedName(static_cast<Unplanned>(i))).BeginObject();
    json->Key("requests").Value(packing.cycle[i].requests);
    json->Key("bytes").Value(packing.cycle[i].bytes).EndObject();
  }
  json->EndObject();
  WriteSpace(packing, json);
  if (packing.trial.has_value()) {
    WriteTrial(*packing.trial, json);
  } else {
    json->Key("trial").Null();
  }
  WritePredicted(packing, json);
  json->EndObject();
}

void WriteLending(const std::optional<LendFigures>& lending, JsonWriter* json) {
  json->Key("lending");
  if (!lending.has_value()) {
    json->Null();
    return;
  }
  json->BeginObject();
  json->Key("saves_bytes").Value(lending->saves());
  json->Key("cycle_saves_bytes").Value(lending->cycle_saves());
  json->Key("held_bytes").Value(lending->held);
  json->Key("held_apart_bytes").Value(lending->held_apart);
  json->Key("pools_bytes").Value(lending->pools);
  json->Key("dead_bytes").Value(lending->dead);
  json->Key("carried_bytes").Value(lending->carried);
  json->Key("kept_bytes").Value(lending->kept);
  json->Key("unknown_pools").Value(lending->unknown);
  json->Key("lent_requests").Value(lending->requests);
  json->Key("limit").Value(LendLimitName(lending->limit));
  json->EndObject();
}

void WriteForecast(const DeviceReport& device, JsonWriter* json) {
  json->Key("forecast");
  if (!device.forecast.has_value()) {
    json->Null();
    return;
  }
  json->BeginObject();
  json->Key("arena_lower_bound_bytes").Value(device.forecast->arena_bytes);
  json->Key("held_lower_bound_bytes").Value(device.forecast->held_bytes);
  json->Key("efficiency_upper_bound").Value(device.EfficiencyAt(device.forecast->held_bytes));
  WriteLending(device.forecast->lending, json);
  json->EndObject();
}

void WriteDevice(const DeviceReport& device, JsonWriter* json) {
  json->BeginObject();
  json->Key("device").Value(device.device);
  WritePeak(device.peak, json);
  json->Key("traced_held_peak_bytes").Value(device.held_peak_bytes);
  json->Key("traced_efficiency").Value(device.traced_efficiency());
  WriteSimulated(device, json);
  WriteGraphs(device, json);
  WriteSegments(device.segments, json);
  WritePhases(device.phases, json);
  WriteStreams(device.streams, json);
  if (device.packing.has_value()) {
    WritePacking(*device.packing, json);
  } else {
    json->Key("plan").Null();
  }
  WriteForecast(device, json);
  WriteStrings("warnings", device.warnings, json);
  WriteStrings("notes", device.notes, json);
  json->EndObject();
}

}  // namespace

void WriteRankJson(const RankReport& report, JsonWriter* json) {
  json->BeginObject();
  json->Key("rank").Value(report.fingerprint.rank);
  WriteFingerprint(report.fingerprint, json);
  json->Key("events").Value(report.events);
  json->Key("trace_complete").Value(report.trace_complete);
  json->Key("seconds").Value(report.seconds);
  json->Key("same_as_rank");
  report.same_as_rank.has_value() ? json->Value(*report.same_as_rank) : json->Null();
  json->Key("equal_to_rank");
  report.equal_to_rank.has_value() ? json->Value(*report.equal_to_rank) : json->Null();
  WriteMarks(report.census, json);
  WriteStrings("warnings", report.warnings, json);
  WriteStrings("notes", report.notes, json);
  json->Key("devices").BeginArray();
  for (const DeviceReport& device : report.devices) {
    WriteDevice(device, json);
  }
  json->EndArray().EndObject();
}

std::string RankJson(const RankReport& report) {
  JsonWriter json;
  WriteRankJson(report, &json);
  return json.Take();
}

}  // namespace stalloc::planner
