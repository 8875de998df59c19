// OomRelay: out-of-memory observers are notified of a failed request once, and not at all of one that was served after
// all.
//
// The native allocator calls its observers before it throws, and knows nothing of the second try that follows when we
// give memory back. So it gets one observer of ours, which keeps each notice for its thread; Stand passes it on,
// Retract forgets it. A retracted failure is also left out of the recorded history and of num_ooms.
// Thread-safe. Observers are called with no lock held, as the native allocator does (they may take Python's GIL).
#pragma once

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/util/ApproximateClock.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <vector>

namespace stalloc {

class OomRelay {
 public:
  using Observer = c10::cuda::CUDACachingAllocator::OutOfMemoryObserver;
  using Entry = c10::cuda::CUDACachingAllocator::TraceEntry;

  // `attach_to_native`: how the native allocator gets an observer; called at the first Attach.
  void Attach(Observer observer, const std::function<void(Observer)>& attach_to_native);

  // A request is at the native allocator on this thread while it lives.
  class Querying {
   public:
    Querying() noexcept;
    ~Querying() { querying_ = false; }
    Querying(const Querying&) = delete;
    Querying& operator=(const Querying&) = delete;
  };
  // The last request's failure is final: the observers are notified of it now. May throw what they throw.
  void Stand();
  // Its failure is not the last word: the request is tried again.
  void Retract(c10::DeviceIndex device);

  // Retracted failures of the device since the last call of ResetRetracted.
  [[nodiscard]] std::int64_t Retracted(c10::DeviceIndex device) const noexcept;
  void ResetRetracted(c10::DeviceIndex device) noexcept;
  // Takes the entries of retracted failures out of a device's recorded history; times are microseconds, as snapshots
  // have them.
  void LeaveOutRetracted(c10::DeviceIndex device, c10::ApproximateClockToUnixTimeConverter& clock,
                         std::vector<Entry>& entries) const;

 private:
  static constexpr std::size_t kRemembered = 1024;  // retracted failures that histories leave out
  struct Failure {                                  // as the native allocator reported it
    std::int64_t device = 0;
    std::size_t allocated = 0;
    std::size_t total = 0;
    std::size_t free = 0;
  };
  struct Span {
    c10::DeviceIndex device;
    c10::approx_time_t begin;
    c10::approx_time_t end;
  };

  void OnNative(const Failure& failure);

  // For the request that this thread has at the native allocator.
  static thread_local bool querying_;
  static thread_local bool failed_;
  static thread_local Failure failure_;
  static thread_local c10::approx_time_t began_;

  std::array<std::atomic<std::int64_t>, C10_COMPILE_TIME_MAX_GPUS> retracted_{};
  mutable std::mutex mutex_;  // guards what follows
  std::vector<Observer> observers_;
  std::deque<Span> spans_;
};

}  // namespace stalloc
