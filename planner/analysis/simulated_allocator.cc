#include "planner/analysis/simulated_allocator.h"

#include <vector>

#include "planner/analysis/sweep.h"

namespace stalloc::planner {

Bytes SimulateRun(const DeviceTrace& device, SimulatedAllocator& allocator) {
  std::vector<SimulatedAllocator::BlockId> blocks(device.allocations.size());
  Sweep sweep(device);
  for (SweepStep step; sweep.Next(&step);) {
    const Allocation& allocation = device.allocations[step.allocation];
    if (step.is_free) {
      allocator.Free(blocks[step.allocation]);
      continue;
    }
    const SimulatedPool pool{allocation.stream, allocation.bytes <= kSmallRequest,
                             (allocation.flags & kAllocCaptured) != 0};
    blocks[step.allocation] = allocator.Allocate(allocation.bytes, pool);
  }
  return allocator.held_bytes();
}

}  // namespace stalloc::planner
