#include "allocator/torch/cuda_oom.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace stalloc {

thread_local bool OomRelay::querying_ = false;
thread_local bool OomRelay::failed_ = false;
thread_local OomRelay::Failure OomRelay::failure_;
thread_local c10::approx_time_t OomRelay::began_ = 0;

void OomRelay::Attach(Observer observer, const std::function<void(Observer)>& attach_to_native) {
  bool first = false;
  {
    const std::lock_guard lock(mutex_);
    first = observers_.empty();
    observers_.push_back(std::move(observer));
  }
  if (!first) return;
  attach_to_native([this](std::int64_t device, std::size_t allocated, std::size_t total, std::size_t free) {
    OnNative({device, allocated, total, free});
  });
}

OomRelay::Querying::Querying() noexcept {
  querying_ = true;
  failed_ = false;
  began_ = c10::getApproximateTime();
}

// A request that did not come through us (the native allocator uncached, a pool of its own) has no second try.
void OomRelay::OnNative(const Failure& failure) {
  failure_ = failure;
  failed_ = true;
  if (!querying_) Stand();
}

void OomRelay::Stand() {
  if (!std::exchange(failed_, false)) return;
  std::vector<Observer> observers;
  {
    const std::lock_guard lock(mutex_);
    observers = observers_;
  }
  for (const Observer& observer : observers) {
    observer(failure_.device, failure_.allocated, failure_.total, failure_.free);
  }
}

void OomRelay::Retract(c10::DeviceIndex device) {
  failed_ = false;
  retracted_[static_cast<std::size_t>(device)].fetch_add(1, std::memory_order_relaxed);
  const std::lock_guard lock(mutex_);
  if (spans_.size() == kRemembered) spans_.pop_front();
  spans_.push_back({device, began_, c10::getApproximateTime()});
}

std::int64_t OomRelay::Retracted(c10::DeviceIndex device) const noexcept {
  return retracted_[static_cast<std::size_t>(device)].load(std::memory_order_relaxed);
}

void OomRelay::ResetRetracted(c10::DeviceIndex device) noexcept {
  retracted_[static_cast<std::size_t>(device)].store(0, std::memory_order_relaxed);
}

void OomRelay::LeaveOutRetracted(c10::DeviceIndex device, c10::ApproximateClockToUnixTimeConverter& clock,
                                 std::vector<Entry>& entries) const {
  std::vector<Span> spans;
  {
    const std::lock_guard lock(mutex_);
    std::copy_if(spans_.begin(), spans_.end(), std::back_inserter(spans),
                 [device](const Span& span) { return span.device == device; });
  }
  if (spans.empty()) return;
  const auto to_nanoseconds = clock.makeConverter();
  const auto retracted = [&](const Entry& entry) {
    return entry.action_ == Entry::OOM && std::any_of(spans.begin(), spans.end(), [&](const Span& span) {
             return to_nanoseconds(span.begin) / 1000 <= entry.time_.t_ &&
                    entry.time_.t_ <= to_nanoseconds(span.end) / 1000;
           });
  };
  std::erase_if(entries, retracted);
}

}  // namespace stalloc
