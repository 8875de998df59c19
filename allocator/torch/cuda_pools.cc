#include "allocator/torch/cuda_pools.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "allocator/driver/cuda_abi.h"
#include "allocator/driver/cuda_api.h"

namespace stalloc {
namespace {

bool IsCapturingByDriver(cudaStream_t stream) {
  const cuda::Api* const api = cuda::Api::Get();
  int status = cuda::kCaptureStatusNone;
  return api == nullptr || api->StreamIsCapturing(reinterpret_cast<cuda::Stream>(stream), &status) != cuda::kSuccess ||
         status != cuda::kCaptureStatusNone;
}

}  // namespace

PoolFilters::PoolFilters() : PoolFilters(IsCapturingByDriver) {}

PoolFilters::PoolFilters(IsCapturing is_capturing) : is_capturing_(std::move(is_capturing)) {}

void PoolFilters::Begin(c10::DeviceIndex device, c10::MempoolId_t pool, Filter filter) {
  captures_.CaptureBegins();
  const std::unique_lock lock(mutex_);
  open_.push_back({device, {pool, Number(device, pool)}, std::move(filter)});
  open_count_.store(open_.size(), std::memory_order_relaxed);
}

void PoolFilters::End(c10::DeviceIndex device, c10::MempoolId_t pool) {
  std::unique_lock lock(mutex_);
  const auto newest = std::find_if(open_.rbegin(), open_.rend(),
                                   [&](const Open& open) { return open.device == device && open.pool.id == pool; });
  if (newest == open_.rend()) return;
  open_.erase(std::next(newest).base());
  open_count_.store(open_.size(), std::memory_order_relaxed);
  lock.unlock();  // who passes the gate requests it
  captures_.CaptureEnds();
}

std::uint32_t PoolFilters::Number(c10::DeviceIndex device, c10::MempoolId_t pool) {
  const auto next = static_cast<std::uint32_t>(numbers_.size() + 1);
  return numbers_.try_emplace({device, pool}, next).first->second;
}

std::uint32_t PoolFilters::Announce(c10::DeviceIndex device, c10::MempoolId_t pool) {
  const std::unique_lock lock(mutex_);
  return Number(device, pool);
}

std::uint32_t PoolFilters::NumberOf(c10::DeviceIndex device, c10::MempoolId_t pool) const {
  const std::shared_lock lock(mutex_);
  const auto found = numbers_.find({device, pool});
  return found == numbers_.end() ? 0 : found->second;
}

std::optional<PoolFilters::OpenPool> PoolFilters::AcceptSlowly(c10::DeviceIndex device, cudaStream_t stream) const {
  const std::shared_lock lock(mutex_);
  const auto open = std::find_if(open_.begin(), open_.end(),
                                 [&](const Open& each) { return each.device == device && each.filter(stream); });
  if (open == open_.end()) return std::nullopt;
  std::atomic_ref(open->last).store(reinterpret_cast<std::uintptr_t>(stream), std::memory_order_relaxed);
  return open->pool;
}

// A pool that is being opened or closed is not among those that are open, or not among those announced.
bool PoolFilters::NoneCaptures(int announced) const {
  const std::shared_lock lock(mutex_);
  return open_.size() == static_cast<std::size_t>(announced) &&
         std::all_of(open_.begin(), open_.end(), [this](const Open& open) {
           const std::uintptr_t last = std::atomic_ref(open.last).load(std::memory_order_relaxed);
           return last != kNone && !is_capturing_(reinterpret_cast<cudaStream_t>(last));
         });
}

}  // namespace stalloc
