// The allocations and frees of one device in the order in which they happened.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "planner/analysis/lifetimes.h"

namespace stalloc::planner {

struct SweepStep {
  std::uint64_t event = 0;       // index into Trace::events
  std::uint32_t allocation = 0;  // index into DeviceTrace::allocations
  bool is_free = false;
};

[[nodiscard]] inline std::vector<SweepStep> SweepOf(const DeviceTrace& device) {
  std::vector<SweepStep> steps;
  steps.reserve(2 * device.allocations.size());
  for (std::uint32_t i = 0; i < device.allocations.size(); ++i) {
    steps.push_back({device.allocations[i].event, i, false});
    if (device.allocations[i].freed()) {
      steps.push_back({device.allocations[i].free_event, i, true});
    }
  }
  std::sort(steps.begin(), steps.end(), [](const SweepStep& a, const SweepStep& b) { return a.event < b.event; });
  return steps;
}

}  // namespace stalloc::planner
