// What is known when a request found no memory: the facts, and the words that go with the error. Bytes.
#pragma once

#include <string>
#include <vector>

#include "allocator/runtime/device_runtime.h"
#include "allocator/runtime/ledger.h"
#include "allocator/runtime/live_blocks.h"
#include "allocator/runtime/plan_entries.h"
#include "allocator/runtime/recent_events.h"

namespace stalloc {

struct OutOfMemoryFacts {
  DeviceIndex device = 0;
  Bytes requested = 0;
  StreamHandle stream = 0;
  RuntimeStats stats;
  MemoryInfo memory;  // of the device; total 0: not known
  PlanPosition position;

  // Null where there is none.
  const DevicePlan* plan = nullptr;
  const PlanEngine* engine = nullptr;
  const Arena* arena = nullptr;
  const PlanEntries* entries = nullptr;
  const Ledger* ledger = nullptr;
  const RecentEvents* events = nullptr;
  const LiveBlocks* live = nullptr;
};

// The entry that the plan expects next; null where it expects none.
[[nodiscard]] const Entry* ExpectedEntry(const OutOfMemoryFacts& facts) noexcept;

// What the native allocator's message cannot say, a line each: what arena or heap hold, where the run is in its plan,
// what to do. Empty where nothing is served here. `report`: the file that was written, or empty.
[[nodiscard]] std::vector<std::string> ExplainOutOfMemory(const OutOfMemoryFacts& facts, const std::string& report);

}  // namespace stalloc
