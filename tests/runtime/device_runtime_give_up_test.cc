// When a plan is given up, when not, and what becomes of its arena then. What that costs: give_up_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/runtime/alloc_fixture.h"
#include "tests/runtime/pattern.h"

namespace stalloc {
namespace {

using ::testing::HasSubstr;

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

// Another batch of the same model, from now on: all sizes are others, and the arena has room for them.
TEST_F(AllocTest, ARunOfOtherSizesKeepsAPlanWhoseArenaServesIt) {
  constexpr Bytes kPlanned = 64 * kMiB;
  constexpr int kBlocks = 20;
  for (const Bytes bytes : {kPlanned + 4 * kMiB, kPlanned / 4}) {
    PlanBuilder plan;
    for (int i = 0; i < kBlocks; ++i) plan.Each(kPlanned);
    Start(plan.Build(), /*capacity=*/0, /*granularity=*/2 * kMiB, nullptr, /*dynamic=*/true);
    iteration_ = 0;
    Iteration();
    for (int i = 0; i < 4; ++i) {
      std::vector<void*> blocks;
      for (int k = 0; k < kBlocks; ++k) blocks.push_back(Allocate(bytes));
      for (void* block : blocks) runtime_->Free(block);
      Iteration();
    }
    const RuntimeStats stats = runtime_->Stats();
    const bool fills = bytes > kPlanned;
    EXPECT_EQ(stats.gave_up, !fills) << "what needs a quarter of the arena does better without it";
    EXPECT_EQ(stats.upstream > 0, !fills);
    EXPECT_THAT(log_.text(), HasSubstr("requests other sizes than its plan has: 0 of 20"));
    EXPECT_EQ(log_.lines(), fills ? 1u : 2u) << log_.text();
  }
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
  EXPECT_EQ(stats.steady.fenced, 1500u);  // five iterations
  EXPECT_EQ(stats.steady.requests, 5u * (60 + 300));
  EXPECT_EQ(stats.steady.hits, 100u);
  EXPECT_EQ(log_.text(), "");
}

TEST_F(AllocTest, WhatIsFencedIsNoMissOfTheTrainingWhoeverServesIt) {
  Start(PlanBuilder().Each(100 * kKiB).Build());
  for (int i = 0; i < 3; ++i) {
    Iteration();
    Churn(1, 100 * kKiB);
    for (int nested = 0; nested < 2; ++nested) {
      runtime_->OnMark({.kind = MarkKind::kFence, .edge = MarkEdge::kBegin, .name = "eval"});
    }
    runtime_->Free(runtime_->Allocate(50 * kKiB, 0, Origin::kParallel));
    runtime_->OnMark({.kind = MarkKind::kFence, .edge = MarkEdge::kEnd, .name = "eval"});
    runtime_->Free(runtime_->Allocate(60 * kKiB, 0, Origin::kCaptured));
    Churn(1, 100 * kKiB);  // of a size that has a slot
    runtime_->OnMark({.kind = MarkKind::kFence, .edge = MarkEdge::kEnd, .name = "eval"});
    runtime_->OnMark({.kind = MarkKind::kFence, .edge = MarkEdge::kEnd, .name = "an end without a begin"});
  }
  const RuntimeStats stats = runtime_->Stats();
  EXPECT_EQ(stats.steady.requests, 2u);
  EXPECT_EQ(stats.steady.hits, 2u);
  EXPECT_EQ(stats.steady.fenced, 6u);
}

TEST_F(AllocTest, FencesAreKnownAfterThePlanWasGivenUp) {
  PlanBuilder plan;
  for (int i = 0; i < 20; ++i) plan.Each(100 * kKiB);
  Start(plan.Build());
  Iteration();
  for (int i = 0; i < 6; ++i) {
    Churn(20, 33 * kKiB);
    runtime_->OnMark({.kind = MarkKind::kFence, .edge = MarkEdge::kBegin, .name = "eval"});
    Churn(7, 77 * kKiB);
    runtime_->OnMark({.kind = MarkKind::kFence, .edge = MarkEdge::kEnd, .name = "eval"});
    Iteration();
  }
  const RuntimeStats stats = runtime_->Stats();
  ASSERT_TRUE(stats.gave_up);
  EXPECT_EQ(stats.steady.requests, 100u);
  EXPECT_EQ(stats.steady.fenced, 35u);
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

}  // namespace
}  // namespace stalloc
