#include "allocator/torch/cpu_upstream.h"

#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "allocator/driver/host_driver.h"

namespace stalloc {
namespace {

using testing::HasSubstr;

// pthread_atfork handlers stay for the process's life, so do the instances.
CpuUpstream& MakeUpstream(VmmDriver* driver, Bytes limit) {
  return *new CpuUpstream(c10::GetDefaultCPUAllocator(), driver, limit);
}

TEST(CpuUpstreamTest, CountsLiveBytesAndTheirPeakAgainstAModel) {
  CpuUpstream& upstream = MakeUpstream(nullptr, 0);
  std::mt19937 random(11);
  std::vector<std::pair<void*, Bytes>> live;
  Bytes held = 0;
  Bytes peak = 0;
  for (int step = 0; step < 20000; ++step) {
    if (live.empty() || random() % 2 == 0) {
      const Bytes bytes = 1 + random() % 5000;
      void* pointer = upstream.Allocate(bytes, 0);
      std::memset(pointer, 0x5a, bytes);
      live.emplace_back(pointer, BlockBytes(bytes));
      held += BlockBytes(bytes);
      peak = std::max(peak, held);
    } else {
      std::swap(live[random() % live.size()], live.back());
      upstream.Free(live.back().first);
      held -= live.back().second;
      live.pop_back();
    }
    ASSERT_EQ(upstream.HeldBytes().current, held);
    ASSERT_EQ(upstream.HeldBytes().peak, peak);
  }
  for (const auto& [pointer, bytes] : live) upstream.Free(pointer);
  EXPECT_EQ(upstream.HeldBytes().current, 0u);
}

TEST(CpuUpstreamTest, FreesABlockThatItDidNotGiveOut) {
  CpuUpstream& upstream = MakeUpstream(nullptr, 0);
  void* older = c10::GetDefaultCPUAllocator()->raw_allocate(64);
  upstream.Free(older);  // a leak or a double free shows under the address sanitizer
  EXPECT_EQ(upstream.HeldBytes().current, 0u);
}

TEST(CpuUpstreamTest, RefusesWhatPassesTheLimitInTheDefaultAllocatorsWords) {
  CpuUpstream& upstream = MakeUpstream(nullptr, 1 << 20);
  void* half = upstream.Allocate(1 << 19, 0);
  try {
    upstream.Allocate((1 << 19) + 1, 0);
    FAIL() << "the limit was passed";
  } catch (const c10::Error& error) {
    EXPECT_THAT(error.what_without_backtrace(), HasSubstr("you tried to allocate 524289 bytes"));
    EXPECT_THAT(error.what_without_backtrace(), HasSubstr("1048576"));
  }
  void* rest = upstream.Allocate(1 << 19, 0);
  upstream.Free(rest);
  upstream.Free(half);
}

TEST(CpuUpstreamTest, CountsWhatTheArenaHoldsTowardsTheLimit) {
  const std::unique_ptr<HostDriver> driver = HostDriver::Create({.capacity = Bytes{8} << 20});
  ASSERT_NE(driver, nullptr);
  CpuUpstream& upstream = MakeUpstream(driver.get(), Bytes{8} << 20);
  PhysicalHandle handle = 0;
  ASSERT_TRUE(driver->Create(Bytes{6} << 20, &handle).ok());
  EXPECT_THROW(upstream.Allocate(Bytes{3} << 20, 0), c10::Error);
  void* fits = upstream.Allocate(Bytes{2} << 20, 0);
  upstream.Free(fits);
  ASSERT_TRUE(driver->Release(handle).ok());
  void* all = upstream.Allocate(Bytes{8} << 20, 0);
  upstream.Free(all);
}

// The fork comes while other threads hold and release the table's locks: a child that inherited a held one would hang.
TEST(CpuUpstreamTest, WorksInAChildForkedFromABusyProcess) {
  CpuUpstream& upstream = MakeUpstream(nullptr, 0);
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 3; ++thread) {
    threads.emplace_back([&] {
      while (!stop.load()) upstream.Free(upstream.Allocate(1000, 0));
    });
  }
  for (int repeat = 0; repeat < 50; ++repeat) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      alarm(20);
      for (int block = 0; block < 64; ++block) upstream.Free(upstream.Allocate(512 + block, 0));
      _exit(0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "child hung or crashed: " << status;
  }
  stop.store(true);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace stalloc
