// Threads that free one block: one of them does, whoever serves it, and observers learn of one end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "allocator/runtime/planned_space.h"
#include "tests/runtime/plan_builder.h"
#include "tests/runtime/traced_fixture.h"

namespace stalloc {
namespace racing_frees {

constexpr Bytes kBytes = Bytes{1} << 20;
constexpr std::uint64_t kThreads = 4;
constexpr std::uint64_t kRounds = 200;

class RacingFreesTest : public TracedTest {
 protected:
  void RaceOver(void* block) {
    std::atomic<std::uint64_t> ready{0};
    std::vector<std::thread> threads;
    for (std::uint64_t thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&] {
        ++ready;
        while (ready.load() < kThreads) std::this_thread::yield();
        runtime_->Free(block);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  void Race() {
    for (std::uint64_t round = 0; round < kRounds; ++round) {
      runtime_->OnMark(IterationMark(static_cast<int>(round)));
      void* const block = runtime_->Allocate(kBytes, 0, Origin::kProgram);
      ASSERT_EQ(runtime_->Owns(block), upstream_.allocations() == 0);
      RaceOver(block);
    }
    const RuntimeStats stats = runtime_->Stats();
    EXPECT_EQ(stats.unknown_frees, kRounds * (kThreads - 1));
    EXPECT_EQ(stats.live_bytes, 0u);
    EXPECT_EQ(stats.peak_live_bytes, kBytes);
    EXPECT_THAT(log_.text(), ::testing::HasSubstr("which was not allocated here"));
    ExpectTraceOfOneFreeEach();
  }
  void ExpectTraceOfOneFreeEach() {
    const Trace trace = Finish();
    EXPECT_EQ(recorder_->GetCounters().unpaired, 0u);
    const auto frees = std::ranges::count(trace.events, EventKind::kFree, &TraceEvent::kind);
    EXPECT_EQ(static_cast<std::uint64_t>(frees), kRounds);
  }
};

TEST_F(RacingFreesTest, ABlockOfTheArenaEndsOnce) {
  const DevicePlan plan = PlanBuilder().Each(kBytes).Build();
  StartTraced({.plan = &plan});
  Race();
  EXPECT_EQ(runtime_->engine()->CheckInvariants(), "");
}

TEST_F(RacingFreesTest, ABlockOfAnExactTraceEndsOnce) {
  StartTraced({.exact = true});
  Race();
  EXPECT_EQ(runtime_->spaces().front()->engine().CheckInvariants(), "");
}

// Upstream gets the others, too: they may be older than the runtime.
TEST_F(RacingFreesTest, ABlockOfUpstreamEndsOnce) {
  StartTraced({});
  Race();
  EXPECT_EQ(upstream_.frees(), static_cast<int>(kRounds * kThreads));
}

TEST_F(RacingFreesTest, AnotherFreeBetweenTheTwoStepsIsUnknown) {
  const DevicePlan plan = PlanBuilder().Each(kBytes).Build();
  StartTraced({.plan = &plan});
  runtime_->OnMark(IterationMark(0));
  void* const block = runtime_->Allocate(kBytes - 1, 3, Origin::kProgram);
  const DeviceRuntime::Ending ending = runtime_->BeginFree(block);
  EXPECT_EQ(ending.requested, kBytes - 1);
  EXPECT_EQ(ending.bytes, kBytes);
  EXPECT_EQ(ending.stream, 3u);
  runtime_->Free(block);
  EXPECT_EQ(runtime_->Stats().unknown_frees, 1u);
  EXPECT_EQ(runtime_->Stats().live_bytes, kBytes);
  runtime_->Free(ending);
  EXPECT_EQ(runtime_->Stats().live_bytes, 0u);
  EXPECT_EQ(runtime_->Stats().unknown_frees, 1u);
}

}  // namespace racing_frees
}  // namespace stalloc
