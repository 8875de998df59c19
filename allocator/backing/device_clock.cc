#include "allocator/backing/device_clock.h"

#include <algorithm>

namespace stalloc {

void DeviceClock::Tick() noexcept {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (fence_ == nullptr || !lock.owns_lock()) return;
  const std::uint64_t stamp = engine_.NewStamp();
  const StreamFence::Event event = fence_->RecordAll();
  if (event == 0) return;
  if (size_ == kMost) DropOldest(1);
  points_[size_++] = {stamp, event};
}

// Events of the whole device come to pass in the order in which they were recorded: the newest that is done decides.
std::uint64_t DeviceClock::Done() noexcept {
  const std::lock_guard lock(mutex_);
  for (std::size_t at = size_; at > 0; --at) {
    if (!fence_->Done(points_[at - 1].event)) continue;
    done_ = points_[at - 1].stamp;
    DropOldest(at);
    break;
  }
  return done_;
}

void DeviceClock::DropOldest(std::size_t count) noexcept {
  for (std::size_t at = 0; at < count; ++at) fence_->Recycle(points_[at].event);
  std::move(points_.begin() + count, points_.begin() + size_, points_.begin());
  size_ -= count;
}

}  // namespace stalloc
