#include "allocator/runtime/stats_json.h"

#include <numeric>

#include "allocator/runtime/json_writer.h"

namespace stalloc {
namespace {

constexpr std::size_t kReasons = static_cast<std::size_t>(MissReason::kCount);

// Under Alloc every request is a hit or a miss with a reason. A device without an engine has no one to say so.
void ExplainEveryMiss(RuntimeStats* stats) {
  auto& misses = stats->engine.misses;
  const std::uint64_t explained =
      std::accumulate(misses.begin(), misses.end(), stats->planned_hits + stats->dynamic_hits);
  if (stats->requests > explained)
    misses[static_cast<std::size_t>(MissReason::kInactive)] += stats->requests - explained;
}

void WriteMisses(const RuntimeStats& stats, JsonWriter* json) {
  json->BeginObject("misses");
  for (std::size_t i = static_cast<std::size_t>(MissReason::kNone) + 1; i < kReasons; ++i) {
    json->Field(MissReasonName(static_cast<MissReason>(i)), stats.engine.misses[i]);
  }
  json->EndObject();
}

void WriteStats(const RuntimeStats& stats, JsonWriter* json) {
  json->Field("requests", stats.requests);
  json->Field("planned_hits", stats.planned_hits);
  json->Field("dynamic_hits", stats.dynamic_hits);
  json->Field("heap_hits", stats.heap_hits);
  json->Field("upstream", stats.upstream);
  WriteMisses(stats, json);
  json->Field("unknown_frees", stats.unknown_frees);
  json->Field("iterations", stats.iterations);
  json->BeginObject("steady");
  json->Field("requests", stats.steady.requests);
  json->Field("hits", stats.steady.hits);
  json->EndObject();
  json->Field("gave_up", stats.gave_up);
  json->Field("live_bytes", stats.live_bytes);
  json->Field("peak_live_bytes", stats.run.live_bytes);
  json->Field("arena_bytes", stats.run.arena_bytes);
  json->Field("arena_live_bytes", stats.arena_live_bytes);
  json->Field("arena_lent_bytes", stats.lent.lent_bytes);
  json->Field("arena_times_lent", stats.lent.times_given_back);
  json->Field("heap_bytes", stats.heap_bytes);
  json->Field("upstream_reserved_bytes", stats.upstream_reserved_bytes);
  json->Field("upstream_reserved_peak_bytes", stats.run.upstream_bytes);
  json->Field("held_peak_bytes", stats.run.held_bytes);
  json->Field("efficiency", stats.run.efficiency);
}

void WriteHead(const SessionFigures& figures, JsonWriter* json) {
  json->Field("mode", ModeName(figures.config.mode));
  json->TextOrNull("degraded", figures.degraded);
  json->Field("rank", figures.config.rank);
  json->Field("local_rank", figures.config.local_rank);
  json->Field("world_size", figures.config.world_size);
  json->Field("stalloc_version", figures.fingerprint.stalloc_version);
  json->TextOrNull("torch_version", figures.fingerprint.torch_version);
  json->TextOrNull("device_name", figures.fingerprint.device_name);
  if (figures.config.mode != Mode::kTrace) return;
  json->BeginObject("trace");
  json->Field("mode", figures.fingerprint.trace_mode);
  json->Field("path", figures.config.TracePath());
  json->Field("events", figures.recorder.events);
  json->Field("blocked", figures.recorder.blocked);
  json->Field("unpaired", figures.recorder.unpaired);
  json->TextOrNull("write_error", figures.recorder.write_error);
  json->EndObject();
}

}  // namespace

std::string StatsToJson(const SessionFigures& figures) {
  std::vector<SessionFigures::Device> devices = figures.devices;
  if (figures.config.mode == Mode::kAlloc) {
    for (SessionFigures::Device& device : devices) ExplainEveryMiss(&device.stats);
  }
  JsonWriter json;
  json.BeginObject();
  WriteHead(figures, &json);
  WriteStats(devices.empty() ? RuntimeStats() : devices.front().stats, &json);
  json.BeginArray("devices");
  for (const SessionFigures::Device& device : devices) {
    json.BeginObject();
    json.Field("device", device.device);
    WriteStats(device.stats, &json);
    json.EndObject();
  }
  json.EndArray();
  json.EndObject();
  return json.text();
}

}  // namespace stalloc
