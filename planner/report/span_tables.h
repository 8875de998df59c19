// What happens inside phases and layers, seen at every event: also spikes that are gone when the span ends. Pure.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "planner/facts/block_facts.h"

namespace stalloc::planner {

struct PhaseRow {  // parallel to PhaseMap::spans
  std::int64_t begin_ns = 0;
  Bytes begin_live = 0;
  Bytes peak_live = 0;
  Bytes end_live = 0;
  std::uint64_t requests = 0;
  Bytes requested = 0;            // sum over requests, rounded up
  BytesByClass begin_by_class{};  // of begin_live

  // Above both ends: what measurements before and after do not see.
  [[nodiscard]] Bytes spike() const { return peak_live - std::max(begin_live, end_live); }
};
[[nodiscard]] std::vector<PhaseRow> TabulatePhases(const DeviceFacts& facts);

// All visits of one layer in one kind of pass.
struct LayerRow {
  std::uint32_t name = 0;  // index into LayerMap::names
  Pass pass = Pass::kNone;
  std::uint64_t visits = 0;
  Bytes peak_live = 0;           // of the whole device, while inside; the greatest
  BytesByClass peak_by_class{};  // of peak_live
  Bytes most_rise = 0;           // above what was live when it began; the greatest
  Bytes most_spike = 0;          // above both ends; the greatest
  std::int64_t most_net = 0;     // what it leaves live; the greatest
  std::uint64_t requests = 0;    // with those of the layers inside it
  Bytes requested = 0;
  std::int64_t ns = 0;  // between begin and end, on the host, of all visits together
};
// In the order in which they were first entered.
[[nodiscard]] std::vector<LayerRow> TabulateLayers(const DeviceFacts& facts);

}  // namespace stalloc::planner
