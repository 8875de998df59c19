#include "planner/report/rank_json.h"

#include <cstddef>

namespace stalloc::planner {
namespace {

void WriteFingerprint(const Fingerprint& fingerprint, JsonWriter* json) {
  json->Key("fingerprint").BeginObject();
  json->Key("torch_version").Value(fingerprint.torch_version);
  json->Key("device_name").Value(fingerprint.device_name);
  json->Key("device_bytes").Value(fingerprint.device_bytes);
  json->Key("driver_version").Value(fingerprint.driver_version);
  json->Key("world_size").Value(fingerprint.world_size);
  json->Key("rank").Value(fingerprint.rank);
  json->Key("local_rank").Value(fingerprint.local_rank);
  json->List("command_line", fingerprint.command_line);
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
  json->Objects("largest_blocks", blocks, [&](const PeakBlock& block) {
    json->Key("bytes").Value(block.bytes);
    json->Key("class").Value(MemoryClassName(block.memory_class));
    json->Key("tensor").Value(TensorRoleName(block.role));
    json->Key("segment").Value(block.segment);
    json->Key("request").Value(block.ordinal);
    json->Key("stream").Value(block.stream);
    json->Key("allocated_in").Value(block.allocated_in);
    json->TextOrNull("freed_in", block.freed_in);
    json->Key("life_requests").Value(block.life_requests);
  });
}

void WritePeakPhases(const std::vector<PeakPhase>& phases, JsonWriter* json) {
  json->Objects("by_phase", phases, [&](const PeakPhase& phase) {
    json->Key("phase").Value(phase.phase).Key("bytes").Value(phase.bytes);
    json->Key("blocks").Value(phase.blocks);
  });
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
  json->Objects("phases", phases, [&](const PhaseReport& phase) {
    json->Key("segment").Value(phase.segment).Key("phase").Value(phase.name);
    json->Key("begin_live_bytes").Value(phase.begin_live_bytes);
    json->Key("peak_live_bytes").Value(phase.peak_live_bytes);
  });
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
  json->ObjectOrNull("graphs", device.graphs, [&](const GraphNeeds& needs) {
    json->Key("needed_bytes").Value(needs.peak);
    json->Key("live_then_bytes").Value(needs.torch_then);
    json->Key("event").Value(needs.event);
    json->Key("capture_bytes").Value(needs.capture_peak);
    json->Key("captured_in").Value(needs.last_segment);
    json->Key("traced_efficiency").Value(device.traced_device_efficiency());
    json->Key("lent_bytes").Value(device.packing.has_value() ? device.packing->lent_bytes : 0);
    json->Key("lent_requests").Value(device.packing.has_value() ? device.packing->lent_requests : 0);
    json->Objects("graphs", needs.graphs, [&](const CapturedGraph& graph) {
      json->Key("number").Value(graph.number);
      json->Key("pool").Value(graph.pool);
      json->Key("launches").Value(graph.launches);
      json->Key("dead_bytes").Value(graph.dead);
      json->Key("carried_bytes").Value(graph.carried);
      json->Key("kept_bytes").Value(graph.kept);
      json->Key("launch_bytes").Value(graph.launch);
    });
  });
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
  json->Objects("segments", segments, [&](const SegmentReport& segment) {
    json->Key("iteration").Value(segment.index);
    json->Key("requests").Value(segment.requests);
    json->Key("requested_bytes").Value(segment.requested_bytes);
    json->Key("peak_live_bytes").Value(segment.peak_live_bytes);
    json->Key("stability").Value(StabilityName(segment.stability));
    if (segment.replay.has_value()) WriteReplay(*segment.replay, json);
  });
}

void WriteStreams(const std::vector<StreamReport>& streams, JsonWriter* json) {
  json->Objects("streams", streams, [&](const StreamReport& stream) {
    json->Key("ordinal").Value(stream.stream.ordinal);
    json->Key("handle").Value(stream.stream.handle);
    json->Key("requests").Value(stream.requests);
    json->Key("bytes").Value(stream.bytes);
    json->Key("recorded_elsewhere").Value(stream.recorded);
    json->Key("main").Value(stream.main);
  });
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
  json->Objects("stream_hand_overs", packing.hand_overs, [&](const StreamPair& pair) {
    json->Key("from_stream").Value(pair.from_stream);
    json->Key("to_stream").Value(pair.to_stream);
    json->Key("hand_overs").Value(pair.hand_overs);
    json->Key("bytes").Value(pair.bytes);
  });
}

void WriteTrial(const TrialReport& trial, JsonWriter* json) {
  json->List("held_out_iterations", trial.held_out);
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
  json->EndArray();
}

void WritePacking(const PackingReport& packing, JsonWriter* json) {
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
  json->ObjectOrNull("trial", packing.trial, [&](const TrialReport& trial) { WriteTrial(trial, json); });
  WritePredicted(packing, json);
}

void WriteLending(const std::optional<LendFigures>& lending, JsonWriter* json) {
  json->ObjectOrNull("lending", lending, [&](const LendFigures& found) {
    json->Key("saves_bytes").Value(found.saves());
    json->Key("cycle_saves_bytes").Value(found.cycle_saves());
    json->Key("held_bytes").Value(found.held);
    json->Key("held_apart_bytes").Value(found.held_apart);
    json->Key("pools_bytes").Value(found.pools);
    json->Key("dead_bytes").Value(found.dead);
    json->Key("carried_bytes").Value(found.carried);
    json->Key("kept_bytes").Value(found.kept);
    json->Key("unknown_pools").Value(found.unknown);
    json->Key("lent_requests").Value(found.requests);
    json->Key("limit").Value(LendLimitName(found.limit));
  });
}

void WriteForecast(const DeviceReport& device, JsonWriter* json) {
  json->ObjectOrNull("forecast", device.forecast, [&](const ForecastReport& forecast) {
    json->Key("arena_lower_bound_bytes").Value(forecast.arena_bytes);
    json->Key("held_lower_bound_bytes").Value(forecast.held_bytes);
    json->Key("efficiency_upper_bound").Value(device.EfficiencyAt(forecast.held_bytes));
    WriteLending(forecast.lending, json);
  });
}

void WriteDevice(const DeviceReport& device, JsonWriter* json) {
  json->Key("device").Value(device.device);
  WritePeak(device.peak, json);
  json->Key("traced_held_peak_bytes").Value(device.held_peak_bytes);
  json->Key("traced_efficiency").Value(device.traced_efficiency());
  WriteSimulated(device, json);
  WriteGraphs(device, json);
  WriteSegments(device.segments, json);
  WritePhases(device.phases, json);
  WriteStreams(device.streams, json);
  json->ObjectOrNull("plan", device.packing, [&](const PackingReport& packing) { WritePacking(packing, json); });
  WriteForecast(device, json);
  json->List("warnings", device.warnings);
  json->List("notes", device.notes);
}

}  // namespace

void WriteRankJson(const RankReport& report, JsonWriter* json) {
  json->Key("rank").Value(report.fingerprint.rank);
  WriteFingerprint(report.fingerprint, json);
  json->Key("events").Value(report.events);
  json->Key("trace_complete").Value(report.trace_complete);
  json->Key("seconds").Value(report.seconds);
  json->NumberOrNull("same_as_rank", report.same_as_rank);
  json->NumberOrNull("equal_to_rank", report.equal_to_rank);
  WriteMarks(report.census, json);
  json->List("warnings", report.warnings);
  json->List("notes", report.notes);
  json->Objects("devices", report.devices, [&](const DeviceReport& device) { WriteDevice(device, json); });
}

std::string RankJson(const RankReport& report) {
  JsonWriter json;
  json.BeginObject();
  WriteRankJson(report, &json);
  json.EndObject();
  return json.Take();
}

}  // namespace stalloc::planner
