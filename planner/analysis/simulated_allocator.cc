#include "planner/analysis/simulated_allocator.h"

#include <algorithm>
#include <vector>

#include "planner/analysis/sweep.h"

namespace stalloc::planner {
namespace {

class PlayedBlocks {
 public:
  PlayedBlocks(const DeviceTrace& device, SimulatedAllocator& allocator)
      : device_(device), allocator_(allocator), blocks_(device.allocations.size()) {}

  void Play(const SweepStep& step) {
    if (step.is_free) return allocator_.Free(blocks_[step.allocation]);
    const Allocation& allocation = device_.allocations[step.allocation];
    const SimulatedPool pool{allocation.stream, allocation.bytes <= kSmallRequest,
                             (allocation.flags & kAllocCaptured) != 0};
    blocks_[step.allocation] = allocator_.Allocate(allocation.bytes, pool);
    most_ = std::max(most_, allocator_.held_bytes());
  }

  void Rehearse(const Rehearsal& rehearsal) {
    const auto is_inside = [&](std::uint64_t event) { return event >= rehearsal.begin && event < rehearsal.end; };
    Sweep sweep(device_);
    for (SweepStep step; sweep.Next(&step);) {
      const Allocation& allocation = device_.allocations[step.allocation];
      if (is_inside(allocation.event) && is_inside(allocation.free_event)) Play(step);
    }
  }

  [[nodiscard]] Bytes most() const { return most_; }

 private:
  const DeviceTrace& device_;
  SimulatedAllocator& allocator_;
  std::vector<SimulatedAllocator::BlockId> blocks_;
  Bytes most_ = 0;
};

}  // namespace

Bytes SimulateRun(const DeviceTrace& device, SimulatedAllocator& allocator, std::span<const std::uint64_t> emptied,
                  std::optional<Rehearsal> rehearsal) {
  PlayedBlocks played(device, allocator);
  auto next = emptied.begin();
  Sweep sweep(device);
  for (SweepStep step; sweep.Next(&step);) {
    if (rehearsal.has_value() && step.event >= rehearsal->before) {
      played.Rehearse(*rehearsal);
      rehearsal.reset();
    }
    if (!step.is_free) {
      for (; next != emptied.end() && *next <= step.event; ++next) allocator.EmptyCaches();
    }
    played.Play(step);
  }
  return played.most();
}

}  // namespace stalloc::planner
