#include "allocator/torch/graph_figures.h"

#include "proto/model/json_writer.h"

namespace stalloc {
namespace {

Bytes LendableBytes(const PoolCatalog& catalog) {
  Bytes bytes = 0;
  for (const ByteRange& range : catalog.Lendable()) bytes += range.end - range.begin;
  return bytes;
}

}  // namespace

std::string GraphFigures(const GraphPools& pools, bool followed) {
  JsonWriter json;
  json.BeginObject();
  json.Field("followed", followed);
  json.BeginArray("pools");
  for (const GraphPool* const pool : pools.All()) {
    const GraphPool::Figures figures = pool->figures();
    const std::vector<PoolBlock> requests = pool->catalog().Requests();
    const PoolLayout layout(requests);
    json.BeginObject();
    json.Field("number", pool->number());
    json.Field("device", pool->device());
    json.Field("open", figures.open);
    json.Field("captures", figures.captures);
    json.Field("requests", requests.size());
    json.Field("launches", figures.launches);
    json.Field("refused", figures.refused);
    json.Field("lendable_bytes", LendableBytes(pool->catalog()));
    json.Field("layout_bytes", layout.bytes());
    json.Field("layout", layout.hash());
    const char* const why = pool->catalog().why_not();
    json.TextOrNull("not_followed", why == nullptr ? "" : why);
    json.EndObject();
  }
  json.EndArray();
  json.EndObject();
  return json.text();
}

}  // namespace stalloc
