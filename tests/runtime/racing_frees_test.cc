// Threads that free one block: one of them does, whoever serves it, and observers learn of one end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "allocator/driver/host_driver.h"
#include "allocator/runtime/device_runtime.h"
#include "allocator/runtime/planned_space.h"
#include "proto/codec/trace_reader.h"
#include "tests/base/test_files.h"
#include "tests/runtime/fake_upstream.h"
#include "tests/runtime/log_capture.h"
#include "tests/runtime/plan_builder.h"

namespace stalloc {
namespace racing_frees {

constexpr Bytes kBytes = Bytes{1} << 20;
constexpr std::uint64_t kThreads = 4;
constexpr std::uint64_t kRounds = 200;

class RacingFreesTest : public ::testing::Test {
 protected:
  void Start(const DevicePlan* plan, bool exact) {
    driver_ = HostDriver::Create({.capacity = 0, .granularity = 64 * 1024});
    Result<std::unique_ptr<Recorder>> opened = Recorder::Open({.path = Path(), .fingerprint = {}});
    ASSERT_TRUE(opened.ok()) << opened.error();
    recorder_ = std::move(opened).value();
    runtime_ = std::make_unique<DeviceRuntime>(DeviceRuntime::Parts{.device = kCpuDevice,
                                                                    .upstream = &upstream_,
                                                                    .driver = driver_.get(),
                                                                    .recorder = recorder_.get(),
                                                                    .plan = plan,
                                                                    .exact = exact});
  }
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
    recorder_->Close();
    EXPECT_EQ(recorder_->GetCounters().unpaired, 0u);
    const absl::StatusOr<Trace> trace = ReadTrace(Path());
    ASSERT_TRUE(trace.ok()) << trace.status();
    const auto frees = std::ranges::count(trace->events, EventKind::kFree, &TraceEvent::kind);
    EXPECT_EQ(static_cast<std::uint64_t>(frees), kRounds);
  }
  [[nodiscard]] std::string Path() const { return directory_.path() + "/rank00000.trace"; }

  LogCapture log_;
  TemporaryDirectory directory_;
  FakeUpstream upstream_;
  std::unique_ptr<HostDriver> driver_;
  std::unique_ptr<Recorder> recorder_;
  std::unique_ptr<DeviceRuntime> runtime_;
};

TEST_F(RacingFreesTest, ABlockOfTheArenaEndsOnce) {
  const DevicePlan plan = PlanBuilder().Each(kBytes).Build();
  Start(&plan, /*exact=*/false);
  Race();
  EXPECT_EQ(runtime_->engine()->CheckInvariants(), "");
}

TEST_F(RacingFreesTest, ABlockOfAnExactTraceEndsOnce) {
  Start(nullptr, /*exact=*/true);
  Race();
  EXPECT_EQ(runtime_->spaces().front()->engine().CheckInvariants(), "");
}

// Upstream gets the others, too: they may be older than the runtime.
TEST_F(RacingFreesTest, ABlockOfUpstreamEndsOnce) {
  Start(nullptr, /*exact=*/false);
  Race();
  EXPECT_EQ(upstream_.frees(), static_cast<int>(kRounds * kThreads));
}

TEST_F(RacingFreesTest, AnotherFreeBetweenTheTwoStepsIsUnknown) {
  const DevicePlan plan = PlanBuilder().Each(kBytes).Build();
  Start(&plan, /*exact=*/false);
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
