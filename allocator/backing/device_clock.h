// DeviceClock: up to when the device is known to be done with everything it was given, by whichever thread, on
// whichever stream.
//
// Events of the whole device (StreamFence::RecordAll; README, After the device's work), since programs have streams
// that no allocator is notified of, and a mark on one thread says nothing of the others. Stamps are the engine's: a
// user of a block gives its work to the device before the block is freed. Thread-safe, noexcept, no heap.
#pragma once

#include <cstdint>
#include <mutex>

#include "allocator/backing/tuning.h"
#include "allocator/base/mutex.h"
#include "allocator/driver/fence_events.h"
#include "allocator/engine/plan_engine.h"

namespace stalloc {

class DeviceClock {
 public:
  // Both outlive this. `fence` may be null: then nothing is ever known.
  DeviceClock(StreamFence* fence, PlanEngine& engine) noexcept : fence_(fence), engine_(engine) {}

  // Records an event after all that the device has been given. Where another thread does that just now, or the device
  // offers none, nothing happens.
  void Tick() noexcept {
    if (fence_ == nullptr || !mutex_.try_lock()) return;
    Record();
    mutex_.unlock();
  }

  // All that was given to the device before this stamp was drawn is done. It queries the device: its events come to
  // pass in the order in which they were recorded, so the newest that is done decides.
  [[nodiscard]] std::uint64_t Done() noexcept {
    const LockGuard lock(mutex_);
    std::uint32_t at = events_.size();
    while (at > 0 && !fence_->Done(events_.At(at - 1).event)) --at;
    if (at > 0) done_ = events_.At(at - 1).stamp;
    for (; at > 0; --at) fence_->Recycle(events_.DropOldest());
    return done_;
  }

 private:
  void Record() noexcept STALLOC_REQUIRES(mutex_) {
    const std::uint64_t stamp = engine_.NewStamp();
    const StreamFence::Event event = fence_->RecordAll();
    if (event == 0) return;
    if (const StreamFence::Event dropped = events_.Add(stamp, event); dropped != 0) fence_->Recycle(dropped);
  }

  StreamFence* const fence_;
  PlanEngine& engine_;
  Mutex mutex_;
  FenceEvents<tuning::kMarksBehind> events_ STALLOC_GUARDED_BY(mutex_);
  std::uint64_t done_ STALLOC_GUARDED_BY(mutex_) = 0;
};

}  // namespace stalloc
