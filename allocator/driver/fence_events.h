// FenceEvents<kMost>: the last events that were recorded after one stream's work, or the device's, ascending by stamp.
//
// A ring of fixed size, fine as all zero bytes. One that is not pinned may be dropped: a thread that would have waited
// for it then waits for a later one. Not thread-safe; noexcept.
#pragma once

#include <array>
#include <cstdint>
#include <utility>

#include "allocator/driver/stream_fence.h"

namespace stalloc {

template <std::uint32_t kMost>
class FenceEvents {
 public:
  struct Entry {
    std::uint64_t stamp = 0;
    StreamFence::Event event = 0;
    std::uint32_t pins = 0;  // calls outside the lock that use the event just now
  };

  [[nodiscard]] std::uint32_t size() const noexcept { return size_; }
  // The oldest is at 0. REQUIRES: index < size(). Valid until the next Add or DropOldest.
  [[nodiscard]] Entry& At(std::uint32_t index) noexcept { return entries_[(first_ + index) % kMost]; }

  // The first that is after all work up to `stamp`; null if there is none.
  [[nodiscard]] Entry* FirstFrom(std::uint64_t stamp) noexcept {
    std::uint32_t low = 0;
    for (std::uint32_t high = size_; low < high;) {
      const std::uint32_t middle = (low + high) / 2;
      (At(middle).stamp < stamp ? low : high) = At(middle).stamp < stamp ? middle + 1 : middle;
    }
    return low < size_ ? &At(low) : nullptr;
  }

  // The entry of a pinned event. REQUIRES: it is here.
  [[nodiscard]] Entry& Find(StreamFence::Event event) noexcept {
    std::uint32_t index = size_ - 1;
    while (At(index).event != event) --index;
    return At(index);
  }

  // Returns the event that is no longer needed, to be recycled: the oldest if there was no space, or this one if that
  // is pinned; 0 if none.
  StreamFence::Event Add(std::uint64_t stamp, StreamFence::Event event) noexcept {
    StreamFence::Event dropped = 0;
    if (size_ == kMost) {
      if (At(0).pins > 0) return event;
      dropped = DropOldest();
    }
    At(size_++) = {stamp, event, 0};
    // Threads that record at once may come back in another order than they drew their stamps.
    for (std::uint32_t index = size_ - 1; index > 0 && At(index - 1).stamp > At(index).stamp; --index) {
      std::swap(At(index - 1), At(index));
    }
    return dropped;
  }

  // REQUIRES: size() > 0, and the oldest is not pinned.
  StreamFence::Event DropOldest() noexcept {
    const StreamFence::Event event = At(0).event;
    first_ = (first_ + 1) % kMost;
    --size_;
    return event;
  }

 private:
  std::uint32_t first_ = 0;
  std::uint32_t size_ = 0;
  std::array<Entry, kMost> entries_{};
};

}  // namespace stalloc
