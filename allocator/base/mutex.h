// Mutex and the guards of it and of SpinMutex, as clang's -Wthread-safety follows them.
#pragma once

#include <mutex>

#include "allocator/base/thread_annotations.h"

namespace stalloc {

// std::mutex, of which the analysis knows.
class STALLOC_CAPABILITY Mutex {
 public:
  void lock() STALLOC_ACQUIRE() { mutex_.lock(); }
  [[nodiscard]] bool try_lock() STALLOC_TRY_ACQUIRE(true) { return mutex_.try_lock(); }
  void unlock() STALLOC_RELEASE() { mutex_.unlock(); }
  // The caller holds it by a lock that the analysis cannot follow (a function's result, a lambda).
  void AssertHeld() const STALLOC_ASSERTS_HELD {}

 private:
  std::mutex mutex_;
};

// std::lock_guard of either mutex.
template <typename Lockable>
class STALLOC_SCOPED_CAPABILITY LockGuard {
 public:
  explicit LockGuard(Lockable& mutex) STALLOC_ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
  ~LockGuard() STALLOC_RELEASE() { mutex_.unlock(); }
  LockGuard(const LockGuard&) = delete;
  LockGuard& operator=(const LockGuard&) = delete;

 private:
  Lockable& mutex_;
};

// A lock that functions open for a moment where it is passed to them. What is guarded must not be looked at meanwhile:
// the analysis takes it for held all the time.
template <typename Lockable>
class STALLOC_SCOPED_CAPABILITY OpenableLock {
 public:
  explicit OpenableLock(Lockable& mutex) STALLOC_ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
  ~OpenableLock() STALLOC_RELEASE() { mutex_.unlock(); }
  OpenableLock(const OpenableLock&) = delete;
  OpenableLock& operator=(const OpenableLock&) = delete;
  void unlock() STALLOC_NO_THREAD_SAFETY_ANALYSIS { mutex_.unlock(); }
  void lock() STALLOC_NO_THREAD_SAFETY_ANALYSIS { mutex_.lock(); }

 private:
  Lockable& mutex_;
};

}  // namespace stalloc
