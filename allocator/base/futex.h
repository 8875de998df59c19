// Futex: waiting on a 32-bit atomic word, without heap memory and without state that fork() could leave locked in a
// child.
//
// A condition variable keeps count of its waiters inside itself; in a forked child those waiters do not exist, and
// destroying the variable there hangs. A futex word is only a number. Thread-safe. Linux only.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdint>

namespace stalloc {

static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t) &&
                  std::atomic<std::uint32_t>::is_always_lock_free,
              "the kernel reads the word directly");

// Sleeps while `word` equals `expected`. May return without reason: callers test their condition again.
inline void FutexWait(const std::atomic<std::uint32_t>& word, std::uint32_t expected) noexcept {
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, expected, nullptr, nullptr, 0);
}

// The same for at most `nanoseconds`.
inline void FutexWaitFor(const std::atomic<std::uint32_t>& word, std::uint32_t expected,
                         std::int64_t nanoseconds) noexcept {
  const timespec timeout{.tv_sec = nanoseconds / 1'000'000'000, .tv_nsec = nanoseconds % 1'000'000'000};
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, expected, &timeout, nullptr, 0);
}

inline void FutexWakeOne(const std::atomic<std::uint32_t>& word) noexcept {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}

inline void FutexWakeAll(const std::atomic<std::uint32_t>& word) noexcept {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace stalloc
