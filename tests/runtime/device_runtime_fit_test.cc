// Whether a plan is worth what it holds: judged by bytes, however well its slots are met.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "tests/runtime/alloc_fixture.h"
#include "tests/runtime/pattern.h"

namespace stalloc {
namespace fit {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kBlocks = 20;
constexpr Bytes kBlock = 12 * kMiB;  // PyTorch's allocator takes a segment for each

// A plan of blocks that live together.
class FitTest : public AllocTest {
 protected:
  void StartPlan() {
    PlanBuilder plan;
    for (int i = 0; i < kBlocks; ++i) plan.Each(kBlock);
    Start(plan.Build(), /*capacity=*/0, /*granularity=*/2 * kMiB, nullptr, /*dynamic=*/true);
    Iteration();
  }
  // As planned, but `together` at a time.
  void Iterate(int together) {
    std::vector<void*> blocks;
    for (int i = 0; i < kBlocks; ++i) {
      blocks.push_back(Allocate(kBlock));
      if (static_cast<int>(blocks.size()) < together) continue;
      for (void* const block : blocks) runtime_->Free(block);
      blocks.clear();
    }
    for (void* const block : blocks) runtime_->Free(block);
    Iteration();
  }
  // Until the plan is given up; how many that were.
  int IterateUntilGivenUp(int together, int most) {
    int iterations = 0;
    for (; iterations < most && !runtime_->Stats().gave_up; ++iterations) Iterate(together);
    return iterations;
  }
};

TEST_F(FitTest, APlanThatLongHoldsMoreThanPyTorchWouldIsGivenUpThoughItsSlotsAreMet) {
  StartPlan();
  EXPECT_EQ(IterateUntilGivenUp(5, 20), 8);
  const RuntimeStats stats = runtime_->Stats();
  EXPECT_EQ(stats.planned_hits, 8u * kBlocks);
  EXPECT_TRUE(stats.departed);
  EXPECT_FALSE(stats.unlike);
  EXPECT_EQ(stats.arena_bytes, 0u) << "at once";
  EXPECT_THAT(log_.text(), HasSubstr("this run's plan does not fit it: 8 iterations in a row held more than they would "
                                     "without it, the last one held 240.00 MiB for 60.00 MiB live (PyTorch's "
                                     "allocator would hold 60.00 MiB)"));
  EXPECT_EQ(log_.lines(), 1u);
  Iterate(5);
  Iterate(5);
  EXPECT_EQ(runtime_->Stats().last_iteration.held, 5 * kBlock);
  EXPECT_EQ(runtime_->Stats().last_iteration.live, 5 * kBlock);
}

TEST_F(FitTest, APlanThatHoldsNoMoreThanPyTorchWouldIsKept) {
  StartPlan();
  Iterate(kBlocks);
  EXPECT_EQ(IterateUntilGivenUp(5, 200), 200);
  const RuntimeStats stats = runtime_->Stats();
  EXPECT_FALSE(stats.gave_up);
  EXPECT_TRUE(stats.departed);
  EXPECT_EQ(stats.planned_hits, 201u * kBlocks);
  EXPECT_EQ(stats.native.held_bytes, kBlocks * kBlock);
  EXPECT_EQ(stats.native.peak_live_bytes, kBlocks * kBlock);
  EXPECT_THAT(log_.text(), HasSubstr("this run needs less than its plan holds: 8 iterations in a row held more than "
                                     "lived in them, the last one held 240.00 MiB for 60.00 MiB live (PyTorch's "
                                     "allocator would hold 240.00 MiB)"));
  EXPECT_EQ(log_.lines(), 1u);
}

// As an evaluation needs it, after graphs were captured: PyTorch's allocator would keep that, too.
TEST_F(FitTest, WhatALargeIterationNeededStaysOnAFreeCardThoughCachesWereEmptiedBeforeIt) {
  keep_free_ = 0;
  replaceable_ = true;  // as under Auto
  PlanBuilder plan;
  plan.Each(4 * kBlock);
  Start(plan.Build(), /*capacity=*/64 * kGiB, /*granularity=*/2 * kMiB, nullptr, /*dynamic=*/true);
  Iteration();
  runtime_->EmptyCache();
  for (int i = 0; i < 300; ++i) {
    std::vector<void*> blocks = {Allocate(4 * kBlock)};
    for (int j = 0; i % 20 == 19 && j < 10; ++j) blocks.push_back(Allocate(kBlock));
    for (void* const block : blocks) runtime_->Free(block);
    Iteration();
  }
  const RuntimeStats stats = runtime_->Stats();
  EXPECT_EQ(stats.lent.times_given_back, 1u) << "by the program";
  EXPECT_GE(stats.arena_bytes, 14 * kBlock);
  EXPECT_EQ(log_.text(), "");
}

// What would be held without the plan is what lives, where upstream caches nothing: another plan is to come.
TEST_F(FitTest, APlanThatCanBeReplacedIsGivenUpForWhatLives) {
  replaceable_ = true;
  upstream_.SetCaches(false);
  StartPlan();
  Iterate(kBlocks);
  EXPECT_EQ(IterateUntilGivenUp(5, 200), 8);
  EXPECT_TRUE(runtime_->Stats().departed);
}

TEST_F(FitTest, APlanThatCanBeReplacedServesUntilThenWhereItHoldsLessThanPyTorchWould) {
  replaceable_ = true;
  StartPlan();
  Iterate(kBlocks);
  EXPECT_EQ(IterateUntilGivenUp(5, 200), 200);
  EXPECT_TRUE(runtime_->Stats().departed);
  EXPECT_EQ(log_.lines(), 1u);
}

TEST_F(FitTest, ARunWhoseSizesVaryAsPlannedIsNoOther) {
  for (const bool replaceable : {false, true}) {
    replaceable_ = replaceable;
    upstream_.SetCaches(!replaceable);
    StartPlan();
    std::mt19937_64 random(5);
    for (int i = 0; i < 300; ++i) Iterate(i % 5 == 0 ? kBlocks : 3 + static_cast<int>(random() % 10));
    EXPECT_FALSE(runtime_->Stats().departed);
    EXPECT_EQ(log_.text(), "");
    for (int i = 0; i < 300; ++i) Iterate(i % 30 == 0 ? kBlocks : 3 + static_cast<int>(random() % 10));
    EXPECT_FALSE(runtime_->Stats().departed && replaceable) << "nobody knows whether another plan would hold less";
  }
}

TEST_F(FitTest, WhatALargeIterationMadeTheArenaGrowByGoesBackOnceItIsLongIdle) {
  PlanBuilder plan;
  plan.Each(4 * kBlock);
  Start(plan.Build(), /*capacity=*/kGiB, /*granularity=*/2 * kMiB, nullptr, /*dynamic=*/true);
  Iteration();
  const auto iterate = [&](int more) {
    std::vector<void*> blocks = {Allocate(4 * kBlock)};
    for (int i = 0; i < more; ++i) blocks.push_back(Allocate(kBlock));
    for (void* const block : blocks) runtime_->Free(block);
    Iteration();
  };
  for (int i = 0; i < 3; ++i) iterate(0);
  iterate(10);
  EXPECT_GE(runtime_->Stats().arena_bytes, 14 * kBlock);
  for (int i = 0; i < 4; ++i) iterate(0);
  EXPECT_EQ(runtime_->Stats().arena_bytes, 4 * kBlock);
  for (int i = 0; i < 50; ++i) iterate(0);
  RuntimeStats stats = runtime_->Stats();
  EXPECT_FALSE(stats.departed);
  EXPECT_EQ(stats.lent.times_given_back, 1u);
  // It comes again and again: what goes back is mapped again each time, so it goes back less and less often.
  for (int i = 0; i < 1000; ++i) iterate(i % 10 == 9 ? 10 : 0);
  stats = runtime_->Stats();
  EXPECT_FALSE(stats.departed);
  EXPECT_LE(stats.lent.times_given_back, 10u);
}

TEST_F(FitTest, WhatGraphsHoldCountsOnNeitherSide) {
  StartPlan();
  void* const captured = runtime_->Allocate(100 * kMiB, 0, Origin::kCaptured);
  upstream_.Cache(300 * kMiB);  // of which nothing lives between two replays
  upstream_.HoldApart(300 * kMiB);
  for (int i = 0; i < 40; ++i) Iterate(kBlocks);
  EXPECT_FALSE(runtime_->Stats().departed);
  EXPECT_EQ(log_.text(), "");
  EXPECT_EQ(runtime_->Stats().native.held_bytes, kBlocks * kBlock + 400 * kMiB);
  for (int i = 0; i < 20; ++i) Iterate(5);
  EXPECT_TRUE(runtime_->Stats().departed);
  runtime_->Free(captured);
}

TEST_F(FitTest, RequestsAreWatchedUntilThePlanHasProvenGood) {
  StartPlan();
  for (int i = 0; i < 12; ++i) Iterate(kBlocks);
  const Bytes known = runtime_->Stats().native.held_bytes;
  EXPECT_EQ(known, kBlocks * kBlock);
  for (int i = 0; i < 5; ++i) {
    void* const more = Allocate(500 * kMiB);  // as much as is held then lives: it is not watched
    Iterate(kBlocks);
    runtime_->Free(more);
  }
  EXPECT_EQ(runtime_->Stats().native.held_bytes, known);
  EXPECT_EQ(runtime_->Stats().native.peak_live_bytes, kBlocks * kBlock);
  EXPECT_FALSE(runtime_->Stats().departed);
}

TEST_F(FitTest, WhatBlocksLeaveOverOfAPlanThatWasGivenUpServes) {
  PlanBuilder plan;
  plan.Persistent(kMiB);
  for (int i = 0; i < kBlocks; ++i) plan.Each(kBlock);
  Start(plan.Build(), /*capacity=*/0, /*granularity=*/2 * kMiB, nullptr, /*dynamic=*/true);
  void* const weights = Allocate(kMiB);
  FillPattern(weights, kMiB, 3);
  Iteration();
  (void)IterateUntilGivenUp(5, 20);
  ASSERT_TRUE(runtime_->Stats().gave_up);
  ASSERT_EQ(runtime_->Stats().arena_bytes, 2 * kMiB);
  for (int i = 0; i < 2; ++i) {
    void* const small = Allocate(64 * kKiB);
    EXPECT_FALSE(runtime_->Owns(small)) << "what lives for an iteration or two only may still have to go";
    runtime_->Free(small);
    Iteration();
  }
  void* const small = Allocate(64 * kKiB);
  void* const large = Allocate(kBlock);
  EXPECT_TRUE(runtime_->Owns(small));
  EXPECT_FALSE(runtime_->Owns(large)) << "nothing is mapped for that";
  FillPattern(small, 64 * kKiB, 4);
  EXPECT_EQ(runtime_->Stats().arena_bytes, 2 * kMiB);
  runtime_->Free(weights);
  Iteration();
  EXPECT_EQ(runtime_->Stats().arena_bytes, 2 * kMiB);
  EXPECT_TRUE(HasPattern(small, 64 * kKiB, 4));
  runtime_->Free(small);
  runtime_->Free(large);
  Iteration();
  EXPECT_EQ(runtime_->Stats().arena_bytes, 0u);
  void* const late = Allocate(64 * kKiB);
  EXPECT_FALSE(runtime_->Owns(late));
  runtime_->Free(late);
  EXPECT_EQ(upstream_.live(), 0u);
}

TEST_F(FitTest, TheFiguresOfAnIterationAreItsOwn) {
  StartPlan();
  Iterate(kBlocks);
  EXPECT_EQ(runtime_->Stats().last_iteration.live, kBlocks * kBlock);
  void* outside = runtime_->Allocate(kMiB, 0, Origin::kCaptured);
  Iterate(1);
  EXPECT_EQ(runtime_->Stats().last_iteration.live, kBlock + kMiB);
  EXPECT_EQ(runtime_->Stats().last_iteration.held, kBlocks * kBlock + kMiB);
  runtime_->Free(outside);
  outside = runtime_->Allocate(5 * kBlock, 0, Origin::kCaptured);
  runtime_->Free(outside);
  runtime_->ResetPeaks();
  Iterate(1);
  EXPECT_EQ(runtime_->Stats().last_iteration.live, 5 * kBlock) << "whatever was reset";
  EXPECT_EQ(runtime_->Stats().last_iteration.held, 25 * kBlock);
  Iterate(1);
  EXPECT_EQ(runtime_->Stats().last_iteration.live, kBlock);
  EXPECT_EQ(runtime_->Stats().last_iteration.held, kBlocks * kBlock);
}

}  // namespace fit
}  // namespace stalloc
