// SpinMutex: a four-byte mutex for critical sections of tens of nanoseconds. Spins briefly, then sleeps on a futex.
//
// Satisfies Lockable, so std::lock_guard and std::unique_lock work. Not recursive, not fair. Takes no heap memory and
// makes no system call unless threads meet. Put it on a cache line of its own (alignas(64)) or next to the data that it
// guards. fork(): a child inherits the word as it is; code that holds one across threads must take it in a
// pthread_atfork handler, or never touch it in the child.
//
// Algorithm: U. Drepper, "Futexes Are Tricky" (2011), mutex 2, with a bounded spin before the first sleep.
#pragma once

#include <atomic>
#include <cstdint>

#include "allocator/base/futex.h"
#include "allocator/base/thread_annotations.h"

namespace stalloc {

// Notifies the core that this is a busy wait.
#if defined(__x86_64__)
inline void SpinPause() noexcept { __builtin_ia32_pause(); }
#elif defined(__aarch64__)
inline void SpinPause() noexcept { asm volatile("yield"); }
#else
inline void SpinPause() noexcept {}
#endif

class STALLOC_CAPABILITY SpinMutex {
 public:
  constexpr SpinMutex() noexcept = default;
  SpinMutex(const SpinMutex&) = delete;
  SpinMutex& operator=(const SpinMutex&) = delete;

  void lock() noexcept STALLOC_ACQUIRE() STALLOC_NO_THREAD_SAFETY_ANALYSIS {
    std::uint32_t expected = kFree;
    if (!state_.compare_exchange_strong(expected, kHeld, std::memory_order_acquire, std::memory_order_relaxed)) {
      LockSlowly();
    }
  }

  [[nodiscard]] bool try_lock() noexcept STALLOC_TRY_ACQUIRE(true) STALLOC_NO_THREAD_SAFETY_ANALYSIS {
    std::uint32_t expected = kFree;
    return state_.compare_exchange_strong(expected, kHeld, std::memory_order_acquire, std::memory_order_relaxed);
  }

  // As Mutex::AssertHeld.
  void AssertHeld() const noexcept STALLOC_ASSERTS_HELD {}

  void unlock() noexcept STALLOC_RELEASE() STALLOC_NO_THREAD_SAFETY_ANALYSIS {
    if (state_.exchange(kFree, std::memory_order_release) == kHeldWithSleepers) FutexWakeOne(state_);
  }

 private:
  static constexpr std::uint32_t kFree = 0;
  static constexpr std::uint32_t kHeld = 1;
  static constexpr std::uint32_t kHeldWithSleepers = 2;
  static constexpr int kSpins =
      100;  // about 1-4 us: longer than a critical section, shorter than a sleep and a wake-up

  [[gnu::noinline]] void LockSlowly() noexcept STALLOC_NO_THREAD_SAFETY_ANALYSIS {
    for (int spin = 0; spin < kSpins; ++spin) {
      SpinPause();
      if (state_.load(std::memory_order_relaxed) == kFree && try_lock()) return;
    }
    // From here on the word says "sleepers" even when this thread gets the lock: others may sleep, too.
    while (state_.exchange(kHeldWithSleepers, std::memory_order_acquire) != kFree) {
      FutexWait(state_, kHeldWithSleepers);
    }
  }

  std::atomic<std::uint32_t> state_{kFree};
};

}  // namespace stalloc
