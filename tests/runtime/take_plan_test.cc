// A run that is served by upstream takes a plan up in the middle of its loop.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "allocator/runtime/spaces.h"
#include "tests/runtime/alloc_fixture.h"
#include "tests/runtime/pattern.h"

namespace stalloc {
namespace {

using ::testing::HasSubstr;

class TakePlanTest : public AllocTest {
 protected:
  void SetUp() override { StartUnplanned(); }
  void StartUnplanned(Bytes capacity = 0) { StartWith(nullptr, capacity, kPage, nullptr, /*dynamic=*/true); }
  std::string TakePlan(const DevicePlan& plan) { return runtime_->TakePlan(plan, 0); }
};

DevicePlan PlanOfTwo() { return PlanBuilder().Each(100 * kKiB).Each(200 * kKiB).Build(); }

TEST_F(TakePlanTest, WhatLivesStaysAndTheNextIterationIsServedFromTheArena) {
  void* const weights = Allocate(kMiB);
  FillPattern(weights, kMiB, 1);
  for (int i = 0; i < 3; ++i) {
    Iteration();
    runtime_->Free(Allocate(100 * kKiB));
    runtime_->Free(Allocate(200 * kKiB));
  }
  ASSERT_EQ(TakePlan(PlanOfTwo()), "");
  EXPECT_FALSE(runtime_->Owns(weights));
  for (int i = 0; i < 3; ++i) {
    Iteration();
    void* const first = Allocate(100 * kKiB);
    void* const second = Allocate(200 * kKiB);
    EXPECT_TRUE(runtime_->Owns(first));
    EXPECT_TRUE(runtime_->Owns(second));
    FillPattern(first, 100 * kKiB, 2);
    FillPattern(second, 200 * kKiB, 3);
    EXPECT_TRUE(HasPattern(weights, kMiB, 1));
    runtime_->Free(first);
    runtime_->Free(second);
  }
  const RuntimeStats stats = runtime_->Stats();
  EXPECT_EQ(stats.iterations, 6u);
  EXPECT_EQ(stats.steady.requests, 6u) << "counted from the plan on";
  EXPECT_EQ(stats.steady.hits, 6u);
  EXPECT_FALSE(stats.gave_up);
  runtime_->Free(weights);
  EXPECT_EQ(upstream_.live(), 0u);
  EXPECT_EQ(runtime_->engine()->CheckInvariants(), "");
}

TEST_F(TakePlanTest, PeaksSinceThePlanAreCountedApart) {
  void* const weights = Allocate(kMiB);
  Iteration();
  runtime_->Free(Allocate(4 * kMiB));
  upstream_.Cache(3 * kMiB);
  ASSERT_EQ(TakePlan(PlanOfTwo()), "");
  Iteration();
  void* const first = Allocate(100 * kKiB);
  runtime_->ResetPeaks();
  runtime_->Free(first);
  const RuntimeStats stats = runtime_->Stats();
  ASSERT_TRUE(stats.since_plan.has_value());
  EXPECT_EQ(stats.since_plan->iterations, 1u);
  EXPECT_EQ(stats.since_plan->peak_live_bytes, kMiB + 100 * kKiB);
  EXPECT_EQ(stats.since_plan->held_peak_bytes, kMiB + 2 * kPage) << "pages that were needed, nothing cached";
  EXPECT_DOUBLE_EQ(stats.since_plan->efficiency, 1124.0 / 1152.0);
  EXPECT_EQ(stats.run.live_bytes, 5 * kMiB);
  EXPECT_EQ(stats.peak_live_bytes, kMiB + 100 * kKiB) << "the program's own peak began at its reset";
  runtime_->Free(weights);
}

TEST_F(TakePlanTest, TheProgramsOwnPeakGoesOnOverIt) {
  Iteration();
  runtime_->Free(Allocate(4 * kMiB));
  ASSERT_EQ(TakePlan(PlanOfTwo()), "");
  EXPECT_EQ(runtime_->Stats().peak_live_bytes, 4 * kMiB);
}

TEST_F(TakePlanTest, TheCycleIsTakenUpWhereTheRunIs) {
  DevicePlan plan = PlanBuilder().Each(100 * kKiB).Build();
  plan.cycle.push_back(plan.cycle[0]);
  plan.cycle[1].entries[0].bytes = plan.cycle[1].entries[0].min_bytes = plan.cycle[1].entries[0].max_bytes = 50 * kKiB;
  for (int i = 0; i < 3; ++i) Iteration();  // of set-up, and cycle[0], cycle[1], cycle[0]
  ASSERT_EQ(TakePlan(plan), "");
  Iteration();
  runtime_->Free(Allocate(50 * kKiB));
  Iteration();
  runtime_->Free(Allocate(100 * kKiB));
  EXPECT_EQ(runtime_->Stats().planned_hits, 2u);
}

TEST_F(TakePlanTest, AnotherPlanServesFromThenOn) {
  Iteration();
  ASSERT_EQ(TakePlan(PlanOfTwo()), "");
  Iteration();
  void* const kept = Allocate(100 * kKiB);
  FillPattern(kept, 100 * kKiB, 1);
  runtime_->SetHeldLimit(1);
  runtime_->Free(Allocate(8 * kMiB));
  runtime_->SetHeldLimit(0);
  ASSERT_EQ(TakePlan(PlanBuilder().Each(300 * kKiB).Build()), "");
  for (int i = 0; i < 3; ++i) {
    Iteration();
    void* const block = Allocate(300 * kKiB);
    EXPECT_TRUE(runtime_->spaces().back()->arena().Contains(block));
    FillPattern(block, 300 * kKiB, 2);
    EXPECT_TRUE(HasPattern(kept, 100 * kKiB, 1));
    runtime_->Free(block);
  }
  RuntimeStats stats = runtime_->Stats();
  EXPECT_EQ(stats.planned_hits, 4u) << "under both plans";
  const auto& misses = stats.engine.misses;
  EXPECT_EQ(std::accumulate(misses.begin(), misses.end(), 0u), 1u) << "likewise";
  EXPECT_EQ(stats.steady.hits, 3u) << "counted from the last plan on";
  EXPECT_EQ(stats.arena_live_bytes, 100 * kKiB);
  runtime_->Free(kept);
  for (int i = 0; i < 2; ++i) Iteration();
  EXPECT_EQ(runtime_->spaces().front()->arena().mapped_bytes(), 0u);
  EXPECT_EQ(runtime_->Stats().unknown_frees, 0u);
}

TEST_F(TakePlanTest, ThereIsRoomForSoManyPlans) {
  while (runtime_->spaces().size() < Spaces::kMost) ASSERT_EQ(TakePlan(PlanOfTwo()), "");
  EXPECT_THAT(TakePlan(PlanOfTwo()), HasSubstr("as many plans up as it can"));
  Iteration();
  runtime_->Free(Allocate(100 * kKiB));
  EXPECT_EQ(runtime_->Stats().planned_hits, 1u);
}

TEST_F(TakePlanTest, ADeviceThatCannotBeWaitedForTakesNone) {
  device_->SetCapturing(true);
  EXPECT_THAT(TakePlan(PlanOfTwo()), HasSubstr("captured"));
  EXPECT_EQ(runtime_->arena(), nullptr);
  device_->SetCapturing(false);
  EXPECT_EQ(TakePlan(PlanOfTwo()), "");
}

// Whatever the run does between: it is taken up where the run is then.
TEST_F(TakePlanTest, APlanIsPreparedBesideTheRun) {
  DevicePlan plan = PlanBuilder().Each(100 * kKiB).Build();
  plan.cycle.push_back(plan.cycle[0]);
  plan.cycle[1].entries[0].bytes = plan.cycle[1].entries[0].min_bytes = plan.cycle[1].entries[0].max_bytes = 50 * kKiB;
  Iteration();
  std::string why;
  std::shared_ptr<PlannedSpace> prepared;
  std::thread([&] { prepared = runtime_->PreparePlan(plan, &why); }).join();
  ASSERT_NE(prepared, nullptr) << why;
  for (int i = 0; i < 2; ++i) {
    Iteration();
    void* const block = Allocate(100 * kKiB);
    EXPECT_FALSE(runtime_->Owns(block));
    runtime_->Free(block);
  }
  device_->SetCapturing(true);
  EXPECT_THAT(runtime_->TakePlan(prepared, 0), HasSubstr("captured"));
  ASSERT_NE(prepared, nullptr) << "for the next try";
  device_->SetCapturing(false);
  ASSERT_EQ(runtime_->TakePlan(prepared, 0), "");
  EXPECT_EQ(prepared, nullptr);
  Iteration();  // behind cycle[0], cycle[1], cycle[0]
  runtime_->Free(Allocate(50 * kKiB));
  EXPECT_EQ(runtime_->Stats().planned_hits, 1u);
  EXPECT_EQ(runtime_->engine()->CheckInvariants(), "");
}

class FreeCardTest : public TakePlanTest {
 protected:
  static constexpr Bytes kHeight = 12 * kMiB;
  void SetUp() override {
    keep_free_ = 0;
    Start(nullptr);
  }
  void Start(const DevicePlan* plan) {
    AllocTest::StartWith(plan, 16 * kMiB, kPage, nullptr, /*dynamic=*/true);
    Iteration();
    plan_ = PlanBuilder().Each(8 * kMiB).Each(4 * kMiB).Build();
    prepared_ = runtime_->PreparePlan(plan_, &why_);
    ASSERT_NE(prepared_, nullptr) << why_;
  }

  DevicePlan plan_;
  std::string why_;
  std::shared_ptr<PlannedSpace> prepared_;
};

TEST_F(FreeCardTest, APreparedPlanHasItsMemory) {
  EXPECT_EQ(prepared_->arena().mapped_bytes(), kHeight);
  EXPECT_EQ(runtime_->Stats().held_peak_bytes, kHeight) << "it is held";
  EXPECT_TRUE(runtime_->RefreshAccess().ok());
  ASSERT_EQ(runtime_->TakePlan(prepared_, 0), "");
  EXPECT_EQ(runtime_->Stats().held_peak_bytes, kHeight) << "once";
  Iteration();
  const Bytes calls = driver_->GetCounts().handles;
  void* const first = Allocate(8 * kMiB);
  void* const second = Allocate(4 * kMiB);
  EXPECT_TRUE(runtime_->Owns(first) && runtime_->Owns(second));
  EXPECT_EQ(driver_->GetCounts().handles, calls) << "nothing is mapped";
  EXPECT_EQ(runtime_->Stats().lent.times_mapped_again, 0u);
  runtime_->Free(first);
  runtime_->Free(second);
  EXPECT_EQ(runtime_->engine()->CheckInvariants(), "");
}

TEST_F(FreeCardTest, OutOfMemoryGetsWhatIsPreparedAndItComesLate) {
  upstream_.FailNext(1);
  void* const block = Allocate(512);
  EXPECT_NE(block, nullptr);
  EXPECT_EQ(prepared_->arena().mapped_bytes(), 0u);
  EXPECT_EQ(driver_->GetCounts().handle_bytes, 0u);
  ASSERT_EQ(runtime_->TakePlan(prepared_, 0), "");
  Iteration();
  void* const first = Allocate(8 * kMiB);
  EXPECT_TRUE(runtime_->Owns(first));
  runtime_->Free(first);
  runtime_->Free(block);
}

TEST_F(FreeCardTest, WhatIsPreparedAndNotTakenGoesBack) {
  prepared_ = nullptr;
  EXPECT_EQ(driver_->GetCounts().handle_bytes, 0u);
}

TEST_F(FreeCardTest, ALimitOrTooLittleLeftLetsItComeLate) {
  prepared_ = nullptr;
  runtime_->SetHeldLimit(kHeight - 1);
  prepared_ = runtime_->PreparePlan(plan_, &why_);
  ASSERT_NE(prepared_, nullptr);
  EXPECT_EQ(prepared_->arena().mapped_bytes(), 0u);
  prepared_ = nullptr;
  runtime_->SetHeldLimit(1);
  runtime_->Free(Allocate(8 * kMiB));  // upstream's, as it will be again before the plan is taken up
  runtime_->SetHeldLimit(kHeight + 8 * kMiB - 1);
  prepared_ = runtime_->PreparePlan(plan_, &why_);
  ASSERT_NE(prepared_, nullptr);
  EXPECT_EQ(prepared_->arena().mapped_bytes(), 0u);
  prepared_ = nullptr;
  runtime_->SetHeldLimit(kHeight + 8 * kMiB);
  prepared_ = runtime_->PreparePlan(plan_, &why_);
  ASSERT_NE(prepared_, nullptr);
  EXPECT_EQ(prepared_->arena().mapped_bytes(), kHeight);
  prepared_ = nullptr;
  keep_free_ = 5 * kMiB;
  Start(nullptr);
  EXPECT_EQ(prepared_->arena().mapped_bytes(), 0u);
}

TEST_F(TakePlanTest, MemoryComesWithTheRequestsThatNeedIt) {
  Iteration();
  ASSERT_EQ(TakePlan(PlanOfTwo()), "");
  EXPECT_EQ(runtime_->arena()->mapped_bytes(), 0u);
  Iteration();
  void* const first = Allocate(100 * kKiB);
  EXPECT_TRUE(runtime_->Owns(first));
  EXPECT_EQ(runtime_->arena()->mapped_bytes(), 2 * kPage);
  runtime_->Free(first);
}

TEST_F(TakePlanTest, WhatUpstreamCachesInTheFirstIterationGoesBackBeforeMoreIsMapped) {
  Iteration();
  void* const gradient = Allocate(40 * kMiB);
  ASSERT_EQ(TakePlan(PlanOfTwo()), "");
  Iteration();
  runtime_->Free(gradient);
  upstream_.Cache(40 * kMiB);
  runtime_->Free(Allocate(100 * kKiB));
  EXPECT_EQ(upstream_.HeldBytes().current, 0u);
}

// A plan could not change it, so that it is no reason to give one up.
TEST_F(TakePlanTest, WhatUpstreamKeepsSinceBeforeThePlanIsNotThePlans) {
  Iteration();
  void* const early = Allocate(30 * kMiB);
  upstream_.Cache(60 * kMiB);
  upstream_.Pin(60 * kMiB);
  ASSERT_EQ(TakePlan(PlanBuilder().Each(40 * kMiB).Build()), "");
  for (int i = 0; i < 30; ++i) {
    Iteration();
    runtime_->Free(Allocate(40 * kMiB));
  }
  EXPECT_EQ(upstream_.HeldBytes().current, 90 * kMiB);
  EXPECT_EQ(runtime_->Stats().planned_hits, 30u);
  EXPECT_FALSE(runtime_->Stats().departed);
  runtime_->Free(early);
}

// Each page's worth of it once, however much upstream serves besides.
TEST_F(TakePlanTest, WhatLivedThenGoesBackWheneverTheProgramFreesIt) {
  Iteration();
  void* const early = Allocate(30 * kMiB);
  void* const late = Allocate(30 * kMiB);
  ASSERT_EQ(TakePlan(PlanOfTwo()), "");
  for (int i = 0; i < 3; ++i) Iteration();
  const int releases = upstream_.releases();
  runtime_->Free(early);
  upstream_.Cache(30 * kMiB);
  Iteration();
  EXPECT_EQ(upstream_.HeldBytes().current, 30 * kMiB);
  for (int i = 0; i < 5; ++i) {
    runtime_->Free(runtime_->Allocate(50 * kMiB, 0, Origin::kCaptured));
    upstream_.Cache(50 * kMiB);
    Iteration();
  }
  EXPECT_EQ(upstream_.releases(), releases + 1);
  runtime_->Free(late);
  Iteration();
  EXPECT_EQ(upstream_.releases(), releases + 2);
  EXPECT_EQ(upstream_.HeldBytes().current, 0u);
}

// Another batch from the beginning on: the arena serves it, and holds no more than it needs.
TEST_F(TakePlanTest, WhatWasHeldBeforeDoesNotCountAgainstThePlan) {
  StartWith(nullptr, /*capacity=*/0, /*granularity=*/2 * kMiB, nullptr, /*dynamic=*/true);
  PlanBuilder plan;
  for (int i = 0; i < 20; ++i) plan.Each(64 * kMiB);
  upstream_.Cache(4 * kGiB);
  Iteration();
  ASSERT_EQ(TakePlan(plan.Build()), "");
  EXPECT_GT(runtime_->Stats().run.held_bytes, 4 * kGiB - 1);
  for (int i = 0; i < 5; ++i) {
    Iteration();
    std::vector<void*> blocks;
    for (int k = 0; k < 20; ++k) blocks.push_back(Allocate(68 * kMiB));
    for (void* block : blocks) runtime_->Free(block);
  }
  const RuntimeStats stats = runtime_->Stats();
  EXPECT_TRUE(stats.departed);
  EXPECT_FALSE(stats.gave_up);
  EXPECT_EQ(stats.upstream, 0u);
}

TEST_F(TakePlanTest, ADeviceWithoutMemoryLeavesItToUpstream) {
  StartUnplanned(kPage);
  void* const block = Allocate(kMiB);
  ASSERT_EQ(TakePlan(PlanOfTwo()), "");
  Iteration();
  void* const planned = Allocate(100 * kKiB);
  EXPECT_FALSE(runtime_->Owns(planned));
  runtime_->Free(planned);
  runtime_->Free(block);
  EXPECT_EQ(upstream_.live(), 0u);
}

TEST_F(TakePlanTest, OutOfMemoryInTheIterationOfTheSwitchGetsWhatLiesIdle) {
  const PlanBuilder plan = PlanBuilder().Each(8 * kMiB).Each(kMiB);
  Iteration();
  void* const kept = Allocate(kMiB);
  ASSERT_EQ(TakePlan(plan.Build()), "");
  Iteration();
  void* const first = Allocate(8 * kMiB);
  void* const second = Allocate(kMiB);
  ASSERT_TRUE(runtime_->Owns(first) && runtime_->Owns(second));
  runtime_->Free(first);
  const Bytes mapped = runtime_->arena()->mapped_bytes();
  upstream_.FailNext(1);
  void* const small = Allocate(512);
  EXPECT_NE(small, nullptr);
  EXPECT_FALSE(runtime_->Owns(small));
  EXPECT_LT(runtime_->arena()->mapped_bytes(), mapped);
  upstream_.FailNext(100);
  EXPECT_THROW((void)Allocate(512), std::bad_alloc) << "nothing is left to give back";
  upstream_.FailNext(0);
  Iteration();
  void* const again = Allocate(8 * kMiB);
  EXPECT_TRUE(runtime_->Owns(again)) << "the plan goes on";
  for (void* block : {kept, second, small, again}) runtime_->Free(block);
  EXPECT_EQ(upstream_.live(), 0u);
  EXPECT_EQ(runtime_->engine()->CheckInvariants(), "");
}

// Their blocks come from upstream or from the arena, and hold what was written, whenever the plan is taken up.
TEST_F(TakePlanTest, OtherThreadsGoOnMeanwhile) {
  std::atomic<bool> done{false};
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (std::uint32_t seed = 1; seed <= 3; ++seed) {
    threads.emplace_back([&, seed] {
      std::minstd_rand random(seed);
      std::vector<std::pair<void*, Bytes>> live;
      while (!done.load()) {
        const Bytes bytes = (1 + random() % 60) * 4 * kKiB;
        void* const block = runtime_->Allocate(bytes, 0, Origin::kProgram);
        FillPattern(block, bytes, seed);
        live.emplace_back(block, bytes);
        if (live.size() < 12) continue;
        std::swap(live[random() % live.size()], live.back());
        wrong += HasPattern(live.back().first, live.back().second, seed) ? 0 : 1;
        runtime_->Free(live.back().first);
        live.pop_back();
      }
      for (const auto& [block, bytes] : live) {
        wrong += HasPattern(block, bytes, seed) ? 0 : 1;
        runtime_->Free(block);
      }
    });
  }
  for (int i = 0; i < 4; ++i) Iteration();
  for (int plans = 0; plans < 3; ++plans) {
    EXPECT_EQ(TakePlan(PlanOfTwo()), "");
    for (int i = 0; i < 20; ++i) Iteration();
  }
  done = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong.load(), 0);
  EXPECT_EQ(upstream_.live(), 0u);
  EXPECT_EQ(runtime_->Stats().unknown_frees, 0u);
  EXPECT_EQ(runtime_->engine()->CheckInvariants(), "");
}

}  // namespace
}  // namespace stalloc
