// Ranks that do the same, as most of a large run do: their plans and reports differ in whose they are, and in nothing
// else. Pure.
#pragma once

#include <vector>

#include "planner/analysis/content_hash.h"
#include "planner/analysis/rank_planner.h"
#include "planner/analysis/traced_rank.h"

namespace stalloc::planner {

using TraceKey = ContentHash::Value;

// For all that the analysis reads of a trace. Times, the fingerprint, ordinals of devices, handles of streams and
// addresses do not count: they are each rank's own. How the blocks of a pool lie relative to each other does.
[[nodiscard]] TraceKey KeyOfTrace(const TracedRank& traced);

// Whose a result is.
struct RankIdentity {
  struct Device {
    DeviceIndex device = 0;
    std::vector<StreamInfo> streams;
  };
  Fingerprint fingerprint;
  std::vector<Device> devices;  // those that have an allocation, ascending
};
[[nodiscard]] RankIdentity IdentityOf(const TracedRank& traced);

// What planning `to` would give. REQUIRES: `result` is that of `from`, both have the same key, and its plan_status is
// fine.
[[nodiscard]] RankResult ResultOfEqual(const RankResult& result, const RankIdentity& from, const RankIdentity& to);

}  // namespace stalloc::planner
