#include "planner/analysis/simulated_allocator.h"

#include <algorithm>
#include <vector>

#include "planner/analysis/sweep.h"

namespace stalloc::planner {

Bytes SimulateRun(const DeviceTrace& device, SimulatedAllocator& allocator, std::span<const std::uint64_t> emptied) {
  std::vector<SimulatedAllocator::BlockId> blocks(device.allocations.size());
  Bytes most = 0;
  auto next = emptied.begin();
  Sweep sweep(device);
  for (SweepStep step; sweep.Next(&step);) {
    const Allocation& allocation = device.allocations[step.allocation];
    if (step.is_free) {
      allocator.Free(blocks[step.allocation]);
      continue;
    }
    for (; next != emptied.end() && *next <= step.event; ++next) allocator.EmptyCaches();
    const SimulatedPool pool{allocation.stream, allocation.bytes <= kSmallRequest,
                             (allocation.flags & kAllocCaptured) != 0};
    blocks[step.allocation] = allocator.Allocate(allocation.bytes, pool);
    most = std::max(most, allocator.held_bytes());
  }
  return most;
}

}  // namespace stalloc::planner
