// What a run in Alloc mode saw of its plan's entries, for the next plan (`stalloc-planner plan --refine`). The file is
// described in proto/FORMAT.md.
#pragma once

#include <cstdint>
#include <vector>

#include "proto/model/trace.h"
#include "proto/model/units.h"

namespace stalloc {

// For one entry of the plan that was at least once not served as it was traced.
struct ObservedEntry {
  std::uint32_t script = 0;  // counted through prologue and cycle
  std::uint32_t entry = 0;   // of the script
  Bytes min_bytes = 0;       // rounded up to kBlockAlignment
  Bytes max_bytes = 0;
  std::uint64_t life = 0;      // requests to the free, the most; 0: none was seen
  std::uint64_t requests = 0;  // not served as they were traced
  std::uint64_t misses = 0;    // of them, not served from the arena

  bool operator==(const ObservedEntry&) const = default;
};

struct ObservedDevice {
  DeviceIndex device = 0;
  std::vector<std::uint32_t> script_entries;  // of the plan that was served: entries of each script
  std::vector<ObservedEntry> entries;         // in any order

  bool operator==(const ObservedDevice&) const = default;
};

struct Observed {
  std::vector<ObservedDevice> devices;

  bool operator==(const Observed&) const = default;
};

}  // namespace stalloc
