// DeviceClock: up to when the device is known to be done with everything it was given, by whichever thread, on
// whichever stream.
//
//   stamps          4        7   Tick 9        12          Done() is 9 once the event of that tick is done:
//   frees           x        y   event         z           x and y are used by no kernel any more, z may be
//
// An event of the whole device (StreamFence::RecordAll), since programs have streams that no allocator hears of, and a
// mark on one thread says nothing of the others. Stamps are the engine's (stream_clocks.h, Note [Stamps]): whoever uses
// a block gives its work to the device before the block is freed. Thread-safe, noexcept, no heap.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "allocator/engine/plan_engine.h"
#include "allocator/engine/stream_fence.h"

namespace stalloc {

class DeviceClock {
 public:
  // Both outlive this. `fence` may be null: then nothing is ever known.
  DeviceClock(StreamFence* fence, PlanEngine& engine) noexcept : fence_(fence), engine_(engine) {}

  // Records an event behind all that the device has been given. Where another thread does that just now, or the device
  // offers none, nothing happens.
  void Tick() noexcept;
  // All that was given to the device before this stamp was drawn is done. Asks the device.
  [[nodiscard]] std::uint64_t Done() noexcept;

 private:
  struct Point {
    std::uint64_t stamp = 0;
    StreamFence::Event event = 0;
  };
  static constexpr std::size_t kMost = 32;  // what a device lags behind, in marks; of more the oldest are dropped

  void DropOldest(std::size_t count) noexcept;

  StreamFence* const fence_;
  PlanEngine& engine_;
  std::mutex mutex_;
  // Guarded by mutex_.
  std::array<Point, kMost> points_;  // ascending
  std::size_t size_ = 0;
  std::uint64_t done_ = 0;
};

}  // namespace stalloc
