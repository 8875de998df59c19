#include "allocator/base/spin_mutex.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <mutex>
#include <thread>
#include <vector>

namespace stalloc {
namespace {

TEST(SpinMutexTest, GuardsACounterAgainstManyThreads) {
  SpinMutex mutex;
  std::uint64_t counter = 0;  // not atomic: TSAN and the final sum notice a broken lock
  constexpr int kThreads = 6;
  constexpr int kTurns = 20'000;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < kTurns; ++i) {
        const std::lock_guard lock(mutex);
        ++counter;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(counter, std::uint64_t{kThreads} * kTurns);
}

TEST(SpinMutexTest, SleepersAreAllWokenAfterALongHold) {
  SpinMutex mutex;
  int entered = 0;
  mutex.lock();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      const std::lock_guard lock(mutex);
      ++entered;
    });
  }
  usleep(30'000);  // far beyond the spin: all of them sleep on the futex
  EXPECT_EQ(entered, 0);
  mutex.unlock();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(entered, 4);
}

// Clang does not follow a lock through expectations.
bool TryLock(SpinMutex& mutex) STALLOC_NO_THREAD_SAFETY_ANALYSIS { return mutex.try_lock(); }
void Unlock(SpinMutex& mutex) STALLOC_NO_THREAD_SAFETY_ANALYSIS { mutex.unlock(); }

TEST(SpinMutexTest, TryLockFailsWhileHeldAndSucceedsAfter) {
  SpinMutex mutex;
  ASSERT_TRUE(TryLock(mutex));
  EXPECT_FALSE(TryLock(mutex));
  Unlock(mutex);
  EXPECT_TRUE(TryLock(mutex));
  Unlock(mutex);
}

}  // namespace
}  // namespace stalloc
