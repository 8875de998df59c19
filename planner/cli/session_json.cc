#include "planner/cli/session_json.h"

#include <cstdint>

#include "planner/report/graph_pools.h"

namespace stalloc::planner {
namespace {

void WriteNames(const char* key, const LayerUnits& units, const UnitChoice& choice, UnitUse use, JsonWriter* json) {
  json->Key(key).BeginArray();
  for (std::size_t i = 0; i < units.units().size(); ++i) {
    if (choice.uses[i] == use) json->Value(units.units()[i].name);
  }
  json->EndArray();
}

}  // namespace

void WriteResult(const FitResult& found, const EditedPeak& untouched, const LayerUnits& units, JsonWriter* json) {
  json->Key("untouched_peak").Value(untouched.live);
  json->Key("fits").Value(found.fits).Key("peak").Value(found.peak.live).Key("cost_ns").Value(found.cost_ns);
  json->Key("bound").Value(found.bound).Key("pool").Value(found.peak.pool);
  json->Key("outside_pool").Value(found.peak.outside_pool);
  WriteNames("recompute", units, found.choice, UnitUse::kRecomputed, json);
  WriteNames("offload", units, found.choice, UnitUse::kOffloaded, json);
  json->Key("offload_state").Value(found.choice.state_offloaded);
  json->Key("host_bytes").Value(found.host_bytes).Key("host_bound").Value(found.host_bound);
}

void WritePeak(const EditedPeak& peak, const DeviceFacts& facts, JsonWriter* json) {
  json->BeginObject().Key("peak").Value(peak.live).Key("event").Value(peak.event);
  json->Key("bound").Value(facts.roles[facts.role_of[facts.phases.At(peak.event)]]);
  json->Key("pool").Value(peak.pool).Key("outside_pool").Value(peak.outside_pool).EndObject();
}

void WriteLayers(const LayerUnits& units, JsonWriter* json) {
  json->Objects("layers", units.units(),
                [&](const LayerUnit& unit) { json->Key("name").Value(unit.name).Key("stores").Value(unit.stores); });
}

void WriteCandidates(const std::vector<FitCandidate>& candidates, JsonWriter* json) {
  json->Objects("candidates", candidates, [&](const FitCandidate& one) {
    json->Key("layers").Value(one.layers);
    json->Key("use").Value(one.use == UnitUse::kRecomputed ? "recompute" : "offload");
    json->Key("count").Value(one.count).Key("away").Value(one.away).Key("peak").Value(one.peak);
    json->Key("cost_ns").Value(one.cost_ns).Key("at_least").Value(one.at_least);
  });
}

// The untouched peak with k times the micro-batch is the most of fixed + k x scaling + k^2 x square.
void WriteScaling(const std::vector<ScalingPoint>& points, JsonWriter* json) {
  json->BeginObject("scaling");
  json->Column("fixed", points, [](const ScalingPoint& point) { return point.fixed; });
  json->Column("scaling", points, [](const ScalingPoint& point) { return point.scaling; });
  json->Column("square", points, [](const ScalingPoint& point) { return point.square; });
  json->EndObject();
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

}  // namespace stalloc::planner
