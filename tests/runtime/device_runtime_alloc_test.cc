// DeviceRuntime in Alloc, over the host driver and real bytes, with hand-made plans.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "allocator/driver/host_driver.h"
#include "allocator/runtime/device_runtime.h"
#include "tests/runtime/fake_upstream.h"
#include "tests/runtime/log_capture.h"
#include "tests/runtime/pattern.h"
#include "tests/runtime/plan_builder.h"

namespace stalloc {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr Bytes kKiB = 1024;
constexpr Bytes kMiB = kKiB * kKiB;
constexpr Bytes kGiB = kKiB * kMiB;
constexpr Bytes kPage = 64 * kKiB;

std::uint64_t Misses(const RuntimeStats& stats, MissReason reason) {
  return stats.engine.misses[static_cast<std::size_t>(reason)];
}

class AllocTest : public ::testing::Test {
 protected:
  void Start(const DevicePlan& plan, Bytes capacity = 0, Bytes granularity = kPage, StreamFence* fence = nullptr,
             bool dynamic = false) {
    runtime_ = nullptr;
    driver_ = HostDriver::Create({.capacity = capacity, .granularity = granularity});
    ASSERT_NE(driver_, nullptr);
    runtime_ = std::make_unique<DeviceRuntime>(DeviceRuntime::Parts{.device = kCpuDevice,
                                                                    .upstream = &upstream_,
                                                                    .driver = driver_.get(),
                                                                    .fence = fence,
                                                                    .plan = &plan,
                                                                    .dynamic = dynamic});
  }
  void* Allocate(Bytes bytes) { return runtime_->Allocate(bytes, 0, Origin::kProgram); }
  // `count` requests of `bytes` and their frees.
  void Churn(int count, Bytes bytes) {
    for (int i = 0; i < count; ++i) runtime_->Free(Allocate(bytes));
  }
  void Iteration() { runtime_->OnMark(IterationMark(iteration_++)); }

  LogCapture log_;
  FakeUpstream upstream_;
  std::unique_ptr<HostDriver> driver_;
  std::unique_ptr<DeviceRuntime> runtime_;
  int iteration_ = 0;
};

TEST_F(AllocTest, PlannedRequestsComeFromTheArenaAndTheRestFromUpstream) {
  Start(PlanBuilder().Persistent(10 * kKiB).Each(100 * kKiB).Each(200 * kKiB).Build());
  void* const weights = Allocate(10 * kKiB);
  FillPattern(weights, 10 * kKiB, 1);
  for (int i = 0; i < 5; ++i) {
    Iteration();
    void* const first = Allocate(100 * kKiB);
    void* const second = Allocate(200 * kKiB);
    void* const extra = Allocate(7 * kKiB);
    FillPattern(first, 100 * kKiB, 2);
    FillPattern(second, 200 * kKiB, 3);
    FillPattern(extra, 7 * kKiB, 4);
    EXPECT_TRUE(runtime_->Owns(first));
    EXPECT_TRUE(runtime_->Owns(second));
    EXPECT_FALSE(runtime_->Owns(extra));
    EXPECT_EQ(runtime_->UpstreamBlockBytes(extra), 7 * kKiB);
    EXPECT_TRUE(HasPattern(weights, 10 * kKiB, 1));
    EXPECT_TRUE(HasPattern(first, 100 * kKiB, 2));
    for (void* pointer : {first, second, extra}) runtime_->Free(pointer);
  }
  const RuntimeStats stats = runtime_->Stats();
  EXPECT_EQ(stats.requests, 16u);
  EXPECT_EQ(stats.planned_hits, 11u);
  EXPECT_EQ(stats.upstream, 5u);
  EXPECT_EQ(Misses(stats, MissReason::kUnknownSize), 5u);
  EXPECT_EQ(stats.iterations, 5u);
  // From the second iteration on: four times two hits of three requests.
  EXPECT_EQ(stats.steady.requests, 12u);
  EXPECT_EQ(stats.steady.hits, 8u);
  EXPECT_EQ(stats.live_bytes, 10 * kKiB);
  EXPECT_EQ(upstream_.live(), 0u);
  EXPECT_EQ(runtime_->engine()->CheckInvariants(), "");
  EXPECT_EQ(log_.text(), "");
}

TEST_F(AllocTest, PeaksAreOfTheSum) {
  Start(PlanBuilder().Each(100 * kKiB).Build());
  Iteration();
  void* const planned = Allocate(100 * kKiB - 100);  // counts rounded to 512
  void* const other = Allocate(50 * kKiB);
  runtime_->Free(planned);
  void* const more = Allocate(30 * kKiB);
  RuntimeStats stats = runtime_->Stats();
  EXPECT_EQ(stats.live_bytes, 80 * kKiB);
  EXPECT_EQ(stats.peak_live_bytes, 150 * kKiB);
  EXPECT_EQ(stats.arena_bytes, 128 * kKiB);  // whole pages
  EXPECT_EQ(stats.held_peak_bytes, 128 * kKiB + 80 * kKiB);
  EXPECT_DOUBLE_EQ(stats.efficiency, 150.0 / 208.0);

  runtime_->Free(more);
  runtime_->ResetPeaks();
  upstream_.ResetPeak();
  stats = runtime_->Stats();
  EXPECT_EQ(stats.peak_live_bytes, 50 * kKiB);
  EXPECT_EQ(stats.held_peak_bytes, 178 * kKiB);
  EXPECT_EQ(stats.run.live_bytes, 150 * kKiB);
  EXPECT_EQ(stats.run.held_bytes, 208 * kKiB);
  EXPECT_EQ(stats.run.upstream_bytes, 80 * kKiB);
  runtime_->Free(other);
}

TEST_F(AllocTest, CapturedRequestsGoUpstream) {
  Start(PlanBuilder().Each(100 * kKiB).Build());
  Iteration();
  void* const captured = runtime_->Allocate(100 * kKiB, 0, Origin::kCaptured);
  EXPECT_FALSE(runtime_->Owns(captured));
  void* const planned = Allocate(100 * kKiB);  // the capture did not use up its entry
  EXPECT_TRUE(runtime_->Owns(planned));
  EXPECT_EQ(Misses(runtime_->Stats(), MissReason::kCapturing), 1u);
  runtime_->Free(captured);
  runtime_->Free(planned);
}

TEST_F(AllocTest, ZeroBytesAndNullAreNothing) {
  Start(PlanBuilder().Each(100 * kKiB).Build());
  EXPECT_EQ(Allocate(0), nullptr);
  runtime_->Free(nullptr);
  runtime_->RecordStream(nullptr, 1);
  EXPECT_EQ(runtime_->Stats().requests, 0u);
  EXPECT_EQ(runtime_->Stats().unknown_frees, 0u);
}

TEST_F(AllocTest, AnArenaThatCannotBeMappedIsAWarningWithBothFiguresAndAnUnplannedRun) {
  Start(PlanBuilder().Each(4 * kMiB).Build(), /*capacity=*/kMiB);
  EXPECT_THAT(runtime_->degraded(), AllOf(HasSubstr("needed 4.00 MiB"), HasSubstr("free 1.00 MiB of 1.00 MiB")));
  EXPECT_THAT(log_.text(), HasSubstr(runtime_->degraded()));
  EXPECT_EQ(log_.lines(), 1u);
  EXPECT_EQ(runtime_->arena(), nullptr);
  Iteration();
  Churn(3, 4 * kMiB);
  EXPECT_EQ(upstream_.allocations(), 3);
  EXPECT_EQ(runtime_->Stats().held_peak_bytes, 4 * kMiB);
  const HostDriver::Counts left = driver_->GetCounts();
  EXPECT_EQ(left.handles + left.maps + left.reservations, 0u);
}

TEST_F(AllocTest, AFreeOfAnUnknownAddressIsCountedLoggedOnceAndHandedOn) {
  Start(PlanBuilder().Each(100 * kKiB).Build());
  std::uint64_t foreign = 0;
  for (int i = 0; i < 3; ++i) runtime_->Free(&foreign);
  EXPECT_EQ(upstream_.frees(), 3);
  EXPECT_EQ(runtime_->Stats().unknown_frees, 3u);
  EXPECT_EQ(runtime_->Stats().live_bytes, 0u);
  EXPECT_EQ(log_.lines(), 2u);  // the first and the second (a power of two), not the third
  // Inside the arena, where no block lives: ours to report, not upstream's to free.
  Iteration();
  void* const planned = Allocate(100 * kKiB);
  runtime_->Free(planned);
  runtime_->Free(planned);
  EXPECT_EQ(upstream_.frees(), 3);
  EXPECT_EQ(runtime_->Stats().unknown_frees, 4u);
  EXPECT_EQ(runtime_->Stats().live_bytes, 0u);
}

// Giving up -----------------------------------------------------------------------------------------------------------

TEST_F(AllocTest, ARunUnlikeItsPlanGivesItUpAndItsMemoryBack) {
  PlanBuilder plan;
  for (int i = 0; i < 20; ++i) plan.Each(100 * kKiB);
  Start(plan.Build());
  EXPECT_GE(driver_->GetCounts().handle_bytes, 20 * 100 * kKiB);
  Iteration();
  Churn(20, 33 * kKiB);
  Iteration();  // judged here: not one hit
  EXPECT_THAT(log_.text(), HasSubstr("0 of 20 requests served"));
  EXPECT_EQ(log_.lines(), 1u);
  RuntimeStats stats = runtime_->Stats();
  EXPECT_TRUE(stats.gave_up);
  EXPECT_EQ(stats.arena_bytes, 0u);
  EXPECT_EQ(driver_->GetCounts().handle_bytes, 0u);
  EXPECT_GE(stats.run.arena_bytes, 20 * 100 * kKiB);
  EXPECT_EQ(stats.run.held_bytes, stats.run.arena_bytes + 33 * kKiB);
  Churn(20, 100 * kKiB);  // even what the plan has goes upstream now
  Iteration();
  stats = runtime_->Stats();
  EXPECT_EQ(stats.planned_hits, 0u);
  EXPECT_EQ(Misses(stats, MissReason::kInactive), 20u);
  EXPECT_EQ(log_.lines(), 1u);
}

TEST_F(AllocTest, ThreePoorIterationsInARowGiveThePlanUp) {
  PlanBuilder plan;
  for (int i = 0; i < 8; ++i) plan.Each(100 * kKiB);
  Start(plan.Build());
  Iteration();
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(runtime_->Stats().gave_up);
    Churn(8, 100 * kKiB);
    Churn(20, 33 * kKiB);  // 8 hits of 28
    Iteration();
  }
  EXPECT_TRUE(runtime_->Stats().gave_up);
}

// Experts' small blocks come in another order each time, and the arena has no place beside its slots for small ones.
TEST_F(AllocTest, SmallRequestsOutOfOrderDoNotCountAgainstAPlanWithDynamicSpace) {
  for (const bool dynamic : {false, true}) {
    PlanBuilder plan;
    plan.Each(4 * kGiB);
    for (int i = 0; i < 30; ++i) plan.Each((8 + static_cast<Bytes>(i)) * kKiB);
    Start(plan.Build(), /*capacity=*/0, /*granularity=*/2 * kMiB, nullptr, dynamic);
    Iteration();
    for (int i = 0; i < 4; ++i) {
      Churn(1, 4 * kGiB);
      for (int k = 29; k >= 0; --k) Churn(1, (8 + static_cast<Bytes>(k)) * kKiB);
      Iteration();
    }
    EXPECT_EQ(runtime_->Stats().gave_up, !dynamic);
    EXPECT_GE(Misses(runtime_->Stats(), MissReason::kUnmatched), dynamic ? 60u : 20u);
  }
}

TEST_F(AllocTest, FencedCapturedAndDeliberatelyUnplannedRequestsDoNotCountAgainstThePlan) {
  PlanBuilder plan;
  for (int i = 0; i < 20; ++i) plan.Each(100 * kKiB).EachUnplanned(40 * kKiB).EachUnplanned(41 * kKiB);
  Start(plan.Build());
  Iteration();
  for (int i = 0; i < 6; ++i) {
    for (int k = 0; k < 20; ++k) {
      Churn(1, 100 * kKiB);
      Churn(1, 40 * kKiB);
      Churn(1, 41 * kKiB);
    }
    runtime_->OnMark({.kind = MarkKind::kFence, .edge = MarkEdge::kBegin, .name = "eval"});
    Churn(300, 77 * kKiB);
    runtime_->OnMark({.kind = MarkKind::kFence, .edge = MarkEdge::kEnd, .name = "eval"});
    for (int k = 0; k < 300; ++k) runtime_->Free(runtime_->Allocate(78 * kKiB, 0, Origin::kCaptured));
    Iteration();
  }
  const RuntimeStats stats = runtime_->Stats();
  EXPECT_FALSE(stats.gave_up);
  EXPECT_EQ(stats.planned_hits, 120u);
  EXPECT_EQ(Misses(stats, MissReason::kFenced), 1800u);
  EXPECT_EQ(log_.text(), "");
}

TEST_F(AllocTest, AnIterationInsideAFenceIsNone) {
  Start(PlanBuilder().Each(100 * kKiB).Build());
  Iteration();
  runtime_->OnMark({.kind = MarkKind::kFence, .edge = MarkEdge::kBegin, .name = "eval"});
  for (int i = 0; i < 3; ++i) {
    Churn(20, 77 * kKiB);
    Iteration();
  }
  runtime_->OnMark({.kind = MarkKind::kFence, .edge = MarkEdge::kEnd, .name = "eval"});
  EXPECT_EQ(runtime_->Stats().iterations, 1u);
  EXPECT_FALSE(runtime_->Stats().gave_up);
  Churn(1, 100 * kKiB);
  EXPECT_EQ(runtime_->Stats().planned_hits, 1u);
}

TEST_F(AllocTest, ALiveBlockKeepsItsMemoryAfterThePlanWasGivenUp) {
  PlanBuilder plan;
  plan.Persistent(10 * kKiB);
  for (int i = 0; i < 20; ++i) plan.Each(100 * kKiB);
  Start(plan.Build());
  void* const weights = Allocate(10 * kKiB);
  ASSERT_TRUE(runtime_->Owns(weights));
  FillPattern(weights, 10 * kKiB, 9);
  Iteration();
  for (int i = 0; i < 4; ++i) {
    Churn(20, 33 * kKiB);
    Iteration();
    ASSERT_TRUE(HasPattern(weights, 10 * kKiB, 9));
  }
  EXPECT_TRUE(runtime_->Stats().gave_up);
  EXPECT_GT(runtime_->Stats().arena_bytes, 0u);  // one chunk, and a block lives in it
  EXPECT_EQ(runtime_->Stats().live_bytes, 10 * kKiB);
  runtime_->Free(weights);
  Iteration();
  EXPECT_EQ(runtime_->Stats().arena_bytes, 0u);
  EXPECT_EQ(driver_->GetCounts().handle_bytes, 0u);
}

TEST_F(AllocTest, OfALargeArenaOnlyTheChunksUnderLiveBlocksStay) {
  PlanBuilder plan;
  plan.Persistent(10 * kKiB);
  for (int i = 0; i < 20; ++i) plan.Each(100 * kKiB);
  Start(plan.ArenaOf(5 * kGiB).Build(), /*capacity=*/6 * kGiB, /*granularity=*/2 * kMiB);
  ASSERT_EQ(runtime_->degraded(), "");
  void* const weights = Allocate(10 * kKiB);
  FillPattern(weights, 10 * kKiB, 9);
  Iteration();
  Churn(20, 33 * kKiB);
  Iteration();
  EXPECT_TRUE(runtime_->Stats().gave_up);
  EXPECT_GT(runtime_->Stats().arena_bytes, 0u);
  EXPECT_LE(runtime_->Stats().arena_bytes, 2 * kGiB);
  EXPECT_TRUE(HasPattern(weights, 10 * kKiB, 9));
  EXPECT_EQ(runtime_->Stats().run.arena_bytes, 5 * kGiB);
}

// A fence whose events are never done.
class NeverFence final : public StreamFence {
 public:
  Event Record(StreamHandle) noexcept override { return ++events_; }
  bool Wait(StreamHandle, Event) noexcept override { return true; }
  bool Done(Event) noexcept override { return false; }
  void Recycle(Event) noexcept override {}

 private:
  std::atomic<Event> events_{0};
};

TEST_F(AllocTest, ABlockPendingOnAnotherStreamIsIdleOnceTheDeviceWasSynchronised) {
  NeverFence fence;
  PlanBuilder plan;
  plan.Persistent(10 * kKiB);
  for (int i = 0; i < 20; ++i) plan.Each(100 * kKiB);
  Start(plan.Build(), 0, kPage, &fence);
  void* const shared = Allocate(10 * kKiB);
  ASSERT_TRUE(runtime_->Owns(shared));
  runtime_->RecordStream(shared, 7);
  runtime_->Free(shared);
  EXPECT_EQ(runtime_->Stats().live_bytes, 0u);  // the program has freed it
  Iteration();
  Churn(20, 33 * kKiB);
  Iteration();
  EXPECT_EQ(driver_->GetCounts().handle_bytes, 0u);
}

// Upstream out of memory ----------------------------------------------------------------------------------------------

TEST_F(AllocTest, UpstreamsErrorPassesWhenThereIsNothingToGiveBack) {
  Start(PlanBuilder().Each(100 * kKiB).Build());
  Iteration();
  void* const planned = Allocate(100 * kKiB);
  upstream_.FailNext(1);
  EXPECT_THROW(Allocate(5 * kKiB), std::bad_alloc);
  EXPECT_EQ(runtime_->Stats().live_bytes, 100 * kKiB);
  EXPECT_GT(runtime_->Stats().arena_bytes, 0u);  // one chunk, and a block lives in it
  EXPECT_EQ(runtime_->Stats().lent.times_given_back, 0u);
  runtime_->Free(planned);
}

TEST_F(AllocTest, AnErrorThatIsNoLackOfMemoryCostsTheArenaNothing) {
  Start(PlanBuilder().Each(100 * kKiB).Build());
  upstream_.FailNext(1);
  upstream_.NextFailureIsOther();
  EXPECT_THROW(Allocate(5 * kKiB), std::runtime_error);
  EXPECT_GT(runtime_->Stats().arena_bytes, 0u);
}

TEST_F(AllocTest, NothingGoesBackWhileTheDeviceMayNotBeSynchronised) {
  Start(PlanBuilder().Each(100 * kKiB).Build());
  upstream_.ForbidSynchronize(true);
  upstream_.FailNext(1);
  EXPECT_THROW(Allocate(5 * kKiB), std::bad_alloc);
  EXPECT_GT(runtime_->Stats().arena_bytes, 0u);
  upstream_.ForbidSynchronize(false);
  upstream_.FailNext(1);
  EXPECT_THROW(runtime_->Allocate(5 * kKiB, 0, Origin::kCaptured), std::bad_alloc);
  EXPECT_GT(runtime_->Stats().arena_bytes, 0u);
}

TEST_F(AllocTest, IdleChunksOfAServedPlanGoBackBeforeUpstreamFailsAndAreMappedAgainWhenNeeded) {
  Start(PlanBuilder().Each(kGiB).Each(kGiB).Each(kGiB).Build(), /*capacity=*/4 * kGiB, /*granularity=*/2 * kMiB);
  Iteration();
  void* const first = Allocate(kGiB);
  FillPattern(first, kMiB, 3);
  upstream_.FailNext(1);
  void* const outside = Allocate(5 * kKiB);
  ASSERT_NE(outside, nullptr);
  RuntimeStats stats = runtime_->Stats();
  EXPECT_EQ(stats.arena_bytes, kGiB);  // the chunk with `first`, of three
  EXPECT_EQ(stats.lent.lent_bytes, 2 * kGiB);
  EXPECT_EQ(stats.lent.times_given_back, 1u);
  EXPECT_FALSE(stats.gave_up);

  void* const second = Allocate(kGiB);
  EXPECT_TRUE(runtime_->Owns(second));
  FillPattern(second, kMiB, 4);
  EXPECT_TRUE(HasPattern(first, kMiB, 3));
  stats = runtime_->Stats();
  EXPECT_EQ(stats.arena_bytes, 2 * kGiB);
  EXPECT_EQ(stats.lent.lent_bytes, kGiB);
  EXPECT_EQ(stats.lent.times_mapped_again, 1u);
  EXPECT_EQ(stats.planned_hits, 2u);
  void* const third = Allocate(kGiB);
  EXPECT_TRUE(runtime_->Owns(third));
  for (void* pointer : {first, second, third, outside}) runtime_->Free(pointer);
  EXPECT_EQ(runtime_->engine()->CheckInvariants(), "");
}

TEST_F(AllocTest, AnEmptiedCacheHoldsOnlyTheChunksUnderLiveBlocks) {
  Start(PlanBuilder().Each(kGiB).Each(kGiB).Each(kGiB).Build(), /*capacity=*/4 * kGiB, /*granularity=*/2 * kMiB);
  Iteration();
  void* const first = Allocate(kGiB);
  FillPattern(first, kMiB, 3);
  upstream_.ForbidSynchronize(true);  // a capture is open
  EXPECT_EQ(runtime_->EmptyCache(), 0u);
  upstream_.ForbidSynchronize(false);
  EXPECT_EQ(runtime_->EmptyCache(), 2 * kGiB);
  EXPECT_EQ(runtime_->Stats().arena_bytes, kGiB);
  EXPECT_EQ(driver_->GetCounts().handle_bytes, kGiB);
  EXPECT_EQ(runtime_->EmptyCache(), 0u);
  void* const second = Allocate(kGiB);
  EXPECT_TRUE(runtime_->Owns(second));
  EXPECT_EQ(runtime_->Stats().arena_bytes, 2 * kGiB);
  EXPECT_TRUE(HasPattern(first, kMiB, 3));
  for (void* pointer : {first, second}) runtime_->Free(pointer);
}

TEST_F(AllocTest, AnEmptiedCacheIsReasonToTryAgainWhatCouldNotBeMapped) {
  Start(PlanBuilder().Each(kGiB).Each(kGiB).Build(), /*capacity=*/2 * kGiB, /*granularity=*/2 * kMiB);
  Iteration();
  runtime_->EmptyCache();
  PhysicalHandle other = 0;  // somebody else takes the device's memory
  ASSERT_TRUE(driver_->Create(3 * kGiB / 2, &other).ok());
  void* const outside = Allocate(kGiB);
  EXPECT_FALSE(runtime_->Owns(outside));
  ASSERT_TRUE(driver_->Release(other).ok());
  runtime_->EmptyCache();
  void* const planned = Allocate(kGiB);
  EXPECT_TRUE(runtime_->Owns(planned));
  for (void* pointer : {outside, planned}) runtime_->Free(pointer);
}

TEST_F(AllocTest, ALimitHoldsForWhatThePlanMapsAgain) {
  Start(PlanBuilder().Each(kGiB).Each(kGiB).Each(kGiB).Build(), /*capacity=*/4 * kGiB, /*granularity=*/2 * kMiB);
  Iteration();
  void* const first = Allocate(kGiB);
  void* const outside = runtime_->Allocate(kMiB, 0, Origin::kCaptured);
  runtime_->SetHeldLimit(4 * kGiB);
  EXPECT_EQ(runtime_->Stats().arena_bytes, 3 * kGiB) << "all within the limit: nothing goes back";
  runtime_->SetHeldLimit(2 * kGiB + kMiB);
  EXPECT_EQ(runtime_->Stats().arena_bytes, kGiB) << "what lies idle goes back at once";
  void* const second = Allocate(kGiB);
  EXPECT_TRUE(runtime_->Owns(second));
  void* const third = Allocate(kGiB);
  EXPECT_FALSE(runtime_->Owns(third)) << "upstream has a limit of its own";
  EXPECT_EQ(Misses(runtime_->Stats(), MissReason::kUnbacked), 1u);
  EXPECT_LE(runtime_->Stats().arena_bytes + kMiB, 2 * kGiB + kMiB);
  for (void* pointer : {first, second, third}) runtime_->Free(pointer);
  runtime_->SetHeldLimit(0);
  Iteration();
  void* again[3];
  for (void*& pointer : again) pointer = Allocate(kGiB);
  for (void* pointer : again) EXPECT_TRUE(runtime_->Owns(pointer));
  for (void* pointer : again) runtime_->Free(pointer);
  runtime_->Free(outside);
}

TEST_F(AllocTest, WhatCannotBeMappedAgainIsAMissUntilThereIsRoom) {
  Start(PlanBuilder().Each(kGiB).Each(kGiB).Each(kMiB).Build(), /*capacity=*/3 * kGiB, /*granularity=*/2 * kMiB);
  Iteration();
  upstream_.FailNext(1);
  runtime_->Free(Allocate(5 * kKiB));
  ASSERT_EQ(runtime_->Stats().arena_bytes, 0u);
  PhysicalHandle other = 0;  // somebody else takes the device's memory
  ASSERT_TRUE(driver_->Create(5 * kGiB / 2, &other).ok());
  void* const first = Allocate(kGiB);
  void* const second = Allocate(kGiB);
  EXPECT_FALSE(runtime_->Owns(second));
  runtime_->Free(second);
  EXPECT_FALSE(runtime_->Owns(first));
  runtime_->Free(first);
  RuntimeStats stats = runtime_->Stats();
  EXPECT_EQ(Misses(stats, MissReason::kUnbacked), 2u);
  EXPECT_EQ(stats.lent.times_not_mapped, 1u);  // a full device is not asked for as much again in the same iteration
  void* const small = Allocate(kMiB);
  EXPECT_TRUE(runtime_->Owns(small));
  runtime_->Free(small);
  ASSERT_TRUE(driver_->Release(other).ok());
  Iteration();
  void* const again = Allocate(kGiB);
  EXPECT_TRUE(runtime_->Owns(again));
  EXPECT_GT(runtime_->Stats().lent.times_mapped_again, 0u);
  runtime_->Free(again);
}

TEST_F(AllocTest, APendingBlockHoldsItsChunkBackUntilItsStreamsAreDone) {
  NeverFence fence;
  Start(PlanBuilder().Each(kGiB).Each(3 * kGiB).Build(), /*capacity=*/5 * kGiB, /*granularity=*/2 * kMiB, &fence);
  Iteration();
  void* const shared = Allocate(kGiB);
  runtime_->RecordStream(shared, 7);
  runtime_->Free(shared);
  upstream_.FailNext(1);
  runtime_->Free(Allocate(5 * kKiB));
  EXPECT_EQ(runtime_->Stats().arena_bytes, kGiB);
}

// What a listener was told, and what the arena held then.
class ToldChanges final : public ArenaListener {
 public:
  explicit ToldChanges(const Arena& arena) : arena_(arena) {}
  void BeforeArenaChange() noexcept override { before.push_back(arena_.mapped_bytes()); }
  void AfterArenaChange() noexcept override { after.push_back(arena_.mapped_bytes()); }
  std::vector<Bytes> before;
  std::vector<Bytes> after;

 private:
  const Arena& arena_;
};

TEST_F(AllocTest, AListenerIsToldAroundEveryChangeOfTheArena) {
  Start(PlanBuilder().Each(kGiB).Build(), /*capacity=*/2 * kGiB, /*granularity=*/2 * kMiB);
  ToldChanges told(*runtime_->arena());
  runtime_->SetArenaListener(&told);
  Iteration();
  upstream_.FailNext(1);
  runtime_->Free(Allocate(5 * kKiB));
  runtime_->Free(Allocate(kGiB));
  EXPECT_EQ(told.before, (std::vector<Bytes>{kGiB, 0}));
  EXPECT_EQ(told.after, (std::vector<Bytes>{0, kGiB}));
}

TEST_F(AllocTest, ThreadsThatRunOutOfMemoryNeverUnmapEachOthersBlocks) {
  PlanBuilder plan;
  constexpr int kBlocks = 6;
  for (int i = 0; i < kBlocks; ++i) plan.Each(kGiB + static_cast<Bytes>(i) * kMiB);
  Start(plan.Build(), /*capacity=*/kBlocks * (kGiB + 64 * kMiB), /*granularity=*/2 * kMiB);
  Iteration();
  std::atomic<bool> done{false};
  std::thread starving([&] {
    while (!done.load()) {
      upstream_.FailNext(1);
      try {
        runtime_->Free(Allocate(512));  // too small to count against the plan
      } catch (const std::bad_alloc&) {
      }
    }
  });
  int broken = 0;
  int served = 0;
  for (int round = 0; round < 200; ++round) {
    std::vector<void*> blocks;
    for (int i = 0; i < kBlocks; ++i) {
      try {
        blocks.push_back(Allocate(kGiB + static_cast<Bytes>(i) * kMiB));
      } catch (const std::bad_alloc&) {  // turned away by the arena, it met the failure that was meant for the other
        blocks.push_back(nullptr);
        continue;
      }
      FillPattern(blocks.back(), 64 * kKiB, static_cast<std::uint8_t>(i + 1));
      served += runtime_->Owns(blocks.back()) ? 1 : 0;
    }
    for (int i = 0; i < kBlocks; ++i) {
      const auto at = static_cast<std::size_t>(i);
      if (blocks[at] == nullptr) continue;
      broken += HasPattern(blocks[at], 64 * kKiB, static_cast<std::uint8_t>(i + 1)) ? 0 : 1;
      runtime_->Free(blocks[at]);
    }
    Iteration();
  }
  done.store(true);
  starving.join();
  EXPECT_EQ(broken, 0);
  EXPECT_GT(served, kBlocks);
  EXPECT_EQ(runtime_->engine()->CheckInvariants(), "");
}

TEST_F(AllocTest, AnIdleArenaOfAGivenUpPlanGoesBackBeforeUpstreamFails) {
  PlanBuilder plan;
  plan.Persistent(10 * kKiB);
  for (int i = 0; i < 20; ++i) plan.Each(100 * kKiB);
  Start(plan.Build());
  void* const weights = Allocate(10 * kKiB);
  Iteration();
  Churn(20, 33 * kKiB);
  Iteration();
  runtime_->Free(weights);  // idle from here on, but no mark has come by
  ASSERT_GT(runtime_->Stats().arena_bytes, 0u);
  upstream_.FailNext(1);
  void* const pointer = Allocate(5 * kKiB);
  EXPECT_NE(pointer, nullptr);
  EXPECT_EQ(runtime_->Stats().arena_bytes, 0u);
  runtime_->Free(pointer);
}

// Fork and threads ----------------------------------------------------------------------------------------------------

TEST_F(AllocTest, AForkedChildServesFromUpstreamAndKeepsTheParentsBytes) {
  Start(PlanBuilder().Persistent(100 * kKiB).Each(100 * kKiB).Build());
  void* const weights = Allocate(100 * kKiB);
  ASSERT_TRUE(runtime_->Owns(weights));
  FillPattern(weights, 100 * kKiB, 5);
  void* const outside = Allocate(3 * kKiB);
  Iteration();
  const pid_t child = fork();
  if (child == 0) {
    runtime_->BecomeInert();
    void* const pointer = Allocate(100 * kKiB);  // the plan has it
    int failed = runtime_->Owns(pointer) ? 1 : 0;
    failed |= HasPattern(weights, 100 * kKiB, 5) ? 0 : 2;
    FillPattern(weights, 100 * kKiB, 6);
    runtime_->Free(weights);
    failed |= HasPattern(weights, 100 * kKiB, 6) ? 0 : 4;  // nothing was unmapped
    runtime_->Free(pointer);
    runtime_->Free(outside);
    runtime_->RecordStream(weights, 3);
    runtime_->OnMark(IterationMark(1));
    _exit(failed);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_TRUE(HasPattern(weights, 100 * kKiB, 5));
  EXPECT_TRUE(runtime_->Owns(Allocate(100 * kKiB)));
  runtime_->Free(outside);
}

TEST_F(AllocTest, ThreadsNeverSeeEachOthersBytes) {
  constexpr int kThreads = 4;
  constexpr int kSteps = 3000;
  PlanBuilder plan;
  for (int i = 0; i < 400; ++i) plan.Each((1 + i % 13) * 4 * kKiB);
  Start(plan.Build());
  Iteration();
  std::vector<std::thread> threads;
  std::atomic<int> broken{0};
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      std::mt19937_64 random(static_cast<std::uint64_t>(thread) + 77);
      struct Block {
        void* pointer;
        Bytes bytes;
        std::uint8_t key;
      };
      std::vector<Block> blocks;
      for (int step = 0; step < kSteps; ++step) {
        if (blocks.size() < 12 && random() % 5 < 3) {
          const Bytes bytes = (1 + random() % 13) * 4 * kKiB;
          const auto key = static_cast<std::uint8_t>(random());
          void* const pointer = Allocate(bytes);
          FillPattern(pointer, bytes, key);
          blocks.push_back({pointer, bytes, key});
        } else if (!blocks.empty()) {
          std::swap(blocks[random() % blocks.size()], blocks.back());
          if (!HasPattern(blocks.back().pointer, blocks.back().bytes, blocks.back().key)) ++broken;
          runtime_->Free(blocks.back().pointer);
          blocks.pop_back();
        }
        if (thread == 0 && step % 200 == 199) Iteration();
        if (thread == 1 && step % 500 == 0) (void)runtime_->Stats();
      }
      for (const Block& block : blocks) runtime_->Free(block.pointer);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(broken, 0);
  const RuntimeStats stats = runtime_->Stats();
  EXPECT_EQ(stats.live_bytes, 0u);
  EXPECT_EQ(stats.requests, stats.planned_hits + stats.upstream);
  EXPECT_EQ(runtime_->engine()->CheckInvariants(), "");
  EXPECT_EQ(upstream_.live(), 0u);
}

}  // namespace
}  // namespace stalloc
