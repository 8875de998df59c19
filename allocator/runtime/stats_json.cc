#include "allocator/runtime/stats_json.h"

#include <algorithm>
#include <numeric>

#include "allocator/runtime/stats_fields.h"

namespace stalloc {
namespace {

// Under Alloc every request is a hit or a miss with a reason. A device without an engine has no one to say so.
void ExplainEveryMiss(RuntimeStats* stats) {
  auto& misses = stats->engine.misses;
  const std::uint64_t explained =
      std::accumulate(misses.begin(), misses.end(), stats->planned_hits + stats->dynamic_hits);
  if (stats->requests > explained)
    misses[static_cast<std::size_t>(MissReason::kInactive)] += stats->requests - explained;
}

// Which one was added first says nothing: a rank may touch another GPU before its own. Of equal ones the lowest index.
RuntimeStats Busiest(const std::vector<SessionFigures::Device>& devices) {
  const auto idler = [](const SessionFigures::Device& left, const SessionFigures::Device& right) {
    if (left.stats.requests != right.stats.requests) return left.stats.requests < right.stats.requests;
    return left.device > right.device;
  };
  const auto busiest = std::max_element(devices.begin(), devices.end(), idler);
  return busiest != devices.end() ? busiest->stats : RuntimeStats();
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
  if (figures.config.mode != Mode::kTrace && figures.config.mode != Mode::kAuto) return;
  json->BeginObject("trace");
  json->Field("mode", figures.fingerprint.trace_mode);
  json->Field("begun", figures.trace_begun);
  json->Field("path", figures.config.TracePath());
  json->Field("events", figures.recorder.events);
  json->Field("blocked", figures.recorder.blocked);
  json->Field("unpaired", figures.recorder.unpaired);
  json->TextOrNull("write_error", figures.recorder.write_error);
  json->EndObject();
  if (figures.config.mode == Mode::kAuto) json->Field("plan_loaded", figures.plan_loaded);
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
  WriteStats(Busiest(devices), &json);
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
