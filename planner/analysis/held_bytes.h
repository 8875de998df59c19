// What a device holds for bytes that are planned or live: the same sum wherever it is predicted.
#pragma once

#include "proto/model/units.h"

namespace stalloc::planner {

// Devices map memory in such units, and upstream allocators take it in such units.
inline constexpr Bytes kMappingUnit = Bytes{2} << 20;
// What an upstream caching allocator holds for each byte that is live in it (measured on varying sizes).
inline constexpr double kUpstreamOverhead = 1.03;

[[nodiscard]] constexpr Bytes HeldByUpstream(Bytes live_peak) {
  return RoundUp(static_cast<Bytes>(static_cast<double>(live_peak) * kUpstreamOverhead), kMappingUnit);
}

}  // namespace stalloc::planner
