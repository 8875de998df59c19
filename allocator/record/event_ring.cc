#include "allocator/record/event_ring.h"

#include "allocator/base/spin_mutex.h"

namespace stalloc {

void EventRing::AwaitRoom(std::uint64_t ticket) noexcept {
  blocked_.fetch_add(1, std::memory_order_relaxed);
  constexpr int kSpins = 200;
  for (int spin = 0; spin < kSpins; ++spin) {
    SpinPause();
    if (ticket - head_.load(std::memory_order_acquire) <= mask_) return;
  }
  waiters_.fetch_add(1, std::memory_order_seq_cst);
  while (true) {
    const std::uint32_t space = space_.load(std::memory_order_seq_cst);
    if (ticket - head_.load(std::memory_order_seq_cst) <= mask_) break;
    WakeConsumer();
    FutexWait(space_, space);
  }
  waiters_.fetch_sub(1, std::memory_order_relaxed);
}

void EventRing::Release(std::uint64_t head) noexcept {
  head_.store(head, std::memory_order_seq_cst);
  if (waiters_.load(std::memory_order_seq_cst) == 0) return;
  space_.fetch_add(1, std::memory_order_seq_cst);
  FutexWakeAll(space_);
}

}  // namespace stalloc
