#include "planner/analysis/idle_checks.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "planner/packing/idle_check.h"

namespace stalloc::planner {
namespace {

// The position in segment `at` at which the block is gone; the segment's length if it outlives it.
Tick EndIn(const Allocation& allocation, std::uint32_t at, Tick length) {
  if (!allocation.freed() || allocation.free_segment > at) {
    return length;
  }
  return allocation.free_segment < at ? 0 : std::min<Tick>(allocation.free_ordinal, length);
}

// What the traced blocks use of the arena while the cycle's first script runs.
std::vector<UsedRange> UsedInFirstScript(const DeviceTrace& device, const DevicePlan& plan) {
  const auto first = static_cast<std::uint32_t>(plan.prologue.size());
  const auto length = static_cast<Tick>(plan.cycle.front().entries.size());
  std::vector<UsedRange> used;
  for (std::uint32_t segment = 0; segment <= first; ++segment) {
    const Script& script = segment < first ? plan.prologue[segment] : plan.cycle.front();
    const std::vector<std::uint32_t>& requests = device.segments[segment].allocations;
    for (std::size_t i = 0; i < std::min(requests.size(), script.entries.size()); ++i) {
      if (script.entries[i].slot == kNoSlot) {
        continue;
      }
      const Tick begin = segment < first ? 0 : static_cast<Tick>(i);
      const Tick end = EndIn(device.allocations[requests[i]], first, length);
      const Slot& slot = plan.slots[script.entries[i].slot];
      if (begin < end) {
        used.push_back({begin, end, slot.offset, slot.capacity});
      }
    }
  }
  return used;
}

std::vector<IdleRange> IdleRangesOf(const DevicePlan& plan) {
  std::vector<IdleRange> idle;
  idle.reserve(plan.idle.rectangles.size());
  for (const IdleRectangle& rectangle : plan.idle.rectangles) {
    idle.push_back({rectangle.offset, rectangle.bytes, rectangle.first, rectangle.length});
  }
  return idle;
}

}  // namespace

absl::Status CheckIdleAgainstPacking(const Timeline& timeline, const Packing& packing, const DevicePlan& plan) {
  const CycleAxis cycle = timeline.cycle();
  return CheckIdleSpace(IdleRangesOf(plan), UsedInCycle(timeline.problem, packing, cycle), cycle.length());
}

absl::Status CheckIdleAgainstTrace(const DeviceTrace& device, const DevicePlan& plan) {
  Tick positions = 0;
  for (const Script& script : plan.cycle) {
    positions += static_cast<Tick>(script.entries.size());
  }
  return CheckIdleSpace(IdleRangesOf(plan), UsedInFirstScript(device, plan), positions);
}

}  // namespace stalloc::planner
