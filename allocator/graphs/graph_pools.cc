#include "allocator/graphs/graph_pools.h"

#include <algorithm>
#include <mutex>

namespace stalloc {

LaunchListener* GraphPools::ListenerOf(DeviceIndex device) const noexcept {
  const auto found = std::ranges::find(listeners_, device, &std::pair<DeviceIndex, LaunchListener*>::first);
  return found == listeners_.end() ? nullptr : found->second;
}

GraphPool& GraphPools::Get(std::uint32_t number, DeviceIndex device) {
  const std::lock_guard lock(mutex_);
  if (number >= pools_.size()) pools_.resize(number + 1);
  std::unique_ptr<GraphPool>& pool = pools_[number];
  if (pool == nullptr) pool = std::make_unique<GraphPool>(number, device, ListenerOf(device));
  return *pool;
}

GraphPool* GraphPools::Find(std::uint32_t number) const noexcept {
  const std::lock_guard lock(mutex_);
  return number < pools_.size() ? pools_[number].get() : nullptr;
}

std::vector<GraphPool*> GraphPools::All() const {
  std::vector<GraphPool*> all;
  const std::lock_guard lock(mutex_);
  for (const std::unique_ptr<GraphPool>& pool : pools_) {
    if (pool != nullptr) all.push_back(pool.get());
  }
  return all;
}

std::vector<GraphPool*> GraphPools::OfDevice(DeviceIndex device) const {
  std::vector<GraphPool*> found = All();
  std::erase_if(found, [device](const GraphPool* pool) { return pool->device() != device; });
  return found;
}

void GraphPools::SetListener(DeviceIndex device, LaunchListener* listener) {
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(listeners_, [device](const auto& each) { return each.first == device; });
    listeners_.emplace_back(device, listener);
  }
  for (GraphPool* const pool : OfDevice(device)) pool->SetListener(listener);
}

}  // namespace stalloc
