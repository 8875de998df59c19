// What is known of graphs' pools, as JSON. Sizes are bytes. Thread-safe. Throws std::bad_alloc.
#pragma once

#include <string>

#include "allocator/graphs/graph_pools.h"

namespace stalloc {

// {"followed": true, "pools": [{"number": 1, "device": 0, "open": false, "captures": 2, "requests": 6, "launches": 9,
//   "refused": 0, "lendable_bytes": 1536, "layout_bytes": 20971520, "layout": 123, "not_followed": null}]}
// `layout` is PoolLayout::hash. `followed`: graphs are. `not_followed`: why the pool is not.
[[nodiscard]] std::string GraphFigures(const GraphPools& pools, bool followed);

}  // namespace stalloc
