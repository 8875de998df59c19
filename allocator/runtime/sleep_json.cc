#include "allocator/runtime/sleep_json.h"

#include "proto/model/json_writer.h"

namespace stalloc {

std::string SleepToJson(std::span<const SleepFigures> devices) {
  JsonWriter json;
  json.BeginObject();
  json.BeginArray("devices");
  for (const SleepFigures& figures : devices) {
    json.BeginObject();
    json.Field("device", figures.device);
    json.Field("blocks", figures.blocks);
    json.Field("kept_bytes", figures.kept);
    json.Field("dropped_bytes", figures.dropped);
    json.Field("copied_bytes", figures.copied);
    json.Field("copies", figures.copies);
    json.Field("given_back_bytes", figures.given_back);
    json.Field("asleep_bytes", figures.asleep);
    json.Field("arena_bytes", figures.arena);
    json.Field("upstream_reserved_bytes", figures.upstream_reserved);
    json.Field("upstream_live_bytes", figures.upstream_live);
    json.Field("host_pool_bytes", figures.host_pool);
    json.Field("pool_seconds", figures.pool_seconds);
    json.Field("seconds", figures.seconds);
    json.EndObject();
  }
  json.EndArray();
  json.EndObject();
  return json.text();
}

}  // namespace stalloc
