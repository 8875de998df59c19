// What reports say of each block of a device: its class, phase and layer. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "planner/analysis/memory_class.h"
#include "planner/analysis/phase_map.h"
#include "planner/analysis/traced_rank.h"
#include "planner/facts/block_names.h"
#include "planner/facts/call_sites.h"
#include "planner/facts/layer_map.h"

namespace stalloc::planner {

// When things happened, which lifetimes do not keep. Memory: eight bytes an event.
struct TraceClock {
  struct Held {
    std::uint32_t event = 0;
    DeviceIndex device = 0;
    Bytes bytes = 0;  // what the allocator below held from here on
  };
  std::vector<std::int64_t> time_ns;  // by event, since the first one; never falls
  std::vector<Held> held;

  // Takes the events that `trace` holds as the next ones of the file.
  void Take(const Trace& trace);
  // For the last event; 0 without one.
  [[nodiscard]] std::int64_t end_ns() const { return time_ns.empty() ? 0 : time_ns.back(); }
};

struct BlockFact {
  MemoryClass memory_class = MemoryClass::kOther;
  MemoryClass by_lifetime = MemoryClass::kOther;  // what it would be if it did not vary: never kDynamic
  std::uint32_t phase = 0;                        // index into PhaseMap::spans, of the allocation
  std::uint32_t free_phase = kNone;               // kNone: never freed
  std::uint32_t layer = 0;  // index into LayerMap::names: of the named tensors inside, else of the request
  TensorRole role = TensorRole::kNone;
  BlockNames::Row names;
  std::uint32_t stack = 0;  // TraceEvent::stack_plus_one
};

// All that reports of one device are made from. What it refers to must outlive it.
struct DeviceFacts {
  DeviceFacts(const TracedRank& traced, const DeviceTrace& traced_device, const TraceClock& trace_clock);

  // Whether the block was allocated in an optimizer's part.
  [[nodiscard]] bool InOptimizer(const BlockFact& block) const {
    return phases.spans()[block.phase].kind == PhaseKind::kOptimizer;
  }

  const DeviceTrace& device;
  const TraceClock& clock;
  std::uint64_t events = 0;
  PhaseMap phases;
  LayerMap layers;
  BlockNames names;
  CallSites calls;
  std::vector<std::string> roles;      // phases without their iteration: "F 0 chunk 1", "set-up"
  std::vector<std::uint32_t> role_of;  // by phase, index into roles
  std::vector<BlockFact> blocks;       // by allocation

 private:
  void NameBlocks();
};

}  // namespace stalloc::planner
