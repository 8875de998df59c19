#include "allocator/torch/cuda_pools.h"

#include <algorithm>
#include <mutex>
#include <utility>

namespace stalloc {

void PoolFilters::Begin(c10::DeviceIndex device, c10::MempoolId_t pool, Filter filter) {
  captures_.CaptureBegins();
  const std::unique_lock lock(mutex_);
  open_.push_back({device, pool, std::move(filter)});
  open_count_.store(open_.size(), std::memory_order_relaxed);
}

void PoolFilters::End(c10::DeviceIndex device, c10::MempoolId_t pool) {
  const std::unique_lock lock(mutex_);
  const auto newest = std::find_if(open_.rbegin(), open_.rend(),
                                   [&](const Open& open) { return open.device == device && open.pool == pool; });
  if (newest == open_.rend()) return;
  open_.erase(std::next(newest).base());
  open_count_.store(open_.size(), std::memory_order_relaxed);
  captures_.CaptureEnds();
}

bool PoolFilters::AcceptSlowly(c10::DeviceIndex device, cudaStream_t stream) const {
  const std::shared_lock lock(mutex_);
  return std::any_of(open_.begin(), open_.end(),
                     [&](const Open& open) { return open.device == device && open.filter(stream); });
}

}  // namespace stalloc
