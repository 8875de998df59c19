// The statistics of a session as JSON: what stalloc_stats_json returns and the summary file holds. docs/summary.md has
// the keys.
#pragma once

#include <string>
#include <vector>

#include "allocator/runtime/device_runtime.h"

namespace stalloc {

struct SessionFigures {
  struct Device {
    DeviceIndex device = 0;
    RuntimeStats stats;
  };
  Config config;
  std::string degraded;
  bool plan_loaded = false;  // as the process began
  Fingerprint fingerprint;
  bool trace_begun = false;  // in this process
  Recorder::Counters recorder;
  std::vector<Device> devices;  // in the order in which they were added
};

[[nodiscard]] std::string StatsToJson(const SessionFigures& figures);

}  // namespace stalloc
