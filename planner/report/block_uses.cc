#include "planner/report/block_uses.h"

#include <algorithm>

namespace stalloc::planner {
namespace {

// By number in the file, the block's index on its device; kNone: it is another device's. Allocations are numbered in
// the order of their events.
std::vector<std::uint32_t> IndicesOnDevice(const TracedRank& traced, const DeviceTrace& device) {
  std::vector<std::uint32_t> foreign;  // events of the other devices' allocations
  for (const DeviceTrace& other : traced.devices) {
    if (&other == &device) continue;
    for (const Allocation& allocation : other.allocations) foreign.push_back(allocation.event);
  }
  std::sort(foreign.begin(), foreign.end());
  std::vector<std::uint32_t> indices(foreign.size() + device.allocations.size(), kNone);
  std::size_t before = 0;
  for (std::uint32_t i = 0; i < device.allocations.size(); ++i) {
    while (before < foreign.size() && foreign[before] < device.allocations[i].event) ++before;
    indices[before + i] = i;
  }
  return indices;
}

}  // namespace

BlockUses::BlockUses(const TracedRank& traced, const DeviceTrace& device, const std::vector<BlockUse>& uses)
    : ends_(device.allocations.size() + 1) {
  if (uses.empty()) return;
  const std::vector<std::uint32_t> indices = IndicesOnDevice(traced, device);
  const auto is_here = [&](const BlockUse& use) {
    return use.allocation < indices.size() && indices[use.allocation] != kNone && use.event <= traced.events;
  };
  for (const BlockUse& use : uses) {
    if (is_here(use)) ++ends_[indices[use.allocation] + std::size_t{1}];
  }
  for (std::size_t i = 1; i < ends_.size(); ++i) ends_[i] += ends_[i - 1];
  uses_.resize(ends_.back());
  std::vector<std::size_t> next(ends_.begin(), ends_.end() - 1);
  for (const BlockUse& use : uses) {
    if (is_here(use)) uses_[next[indices[use.allocation]]++] = {static_cast<std::uint32_t>(use.event), use.operation};
  }
  for (std::size_t i = 0; i + 1 < ends_.size(); ++i) {
    std::stable_sort(uses_.data() + ends_[i], uses_.data() + ends_[i + 1],
                     [](const Use& a, const Use& b) { return a.event < b.event; });
  }
}

}  // namespace stalloc::planner
