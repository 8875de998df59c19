// A run that will take a plan up: what stays is served from an arena of its own until then.
#include <gtest/gtest.h>

#include <thread>
#include <utility>
#include <vector>

#include "allocator/runtime/planned_space.h"
#include "tests/runtime/alloc_fixture.h"
#include "tests/runtime/pattern.h"

namespace stalloc {
namespace {

// What the test says that this thread runs.
thread_local RunningPass t_pass = RunningPass::kOther;

RunningPass PassHereInTest() noexcept { return t_pass; }

class SetUpTest : public AllocTest {
 protected:
  void SetUp() override { StartWaiting(); }
  void StartWaiting(Bytes capacity = 0) {
    StartRuntime({.awaits_plan = true, .dynamic = true, .pass_here = &PassHereInTest}, capacity);
  }
  void MakeState(MarkEdge edge) {
    runtime_->OnMark({.kind = MarkKind::kLayer, .edge = edge, .pass = Pass::kOther, .name = "optimizer_state"});
  }
  Bytes Mapped() { return runtime_->spaces().front()->arena().mapped_bytes(); }
  // In chunks, which go by the size of the machine.
  Bytes Chunk() { return runtime_->spaces().front()->arena().chunk_bytes(); }
};

TEST_F(SetUpTest, WeightsAndStateAreInTheArenaAndTheLoopsBlocksAreNot) {
  void* const weights = Allocate(kMiB);
  void* const small = Allocate(100);
  Iteration();
  void* const activation = Allocate(kMiB);
  MakeState(MarkEdge::kBegin);
  void* const state = Allocate(kMiB);
  MakeState(MarkEdge::kEnd);
  void* const temporary = Allocate(kMiB);
  EXPECT_TRUE(runtime_->Owns(weights));
  EXPECT_TRUE(runtime_->Owns(small));
  EXPECT_TRUE(runtime_->Owns(state));
  EXPECT_FALSE(runtime_->Owns(activation));
  EXPECT_FALSE(runtime_->Owns(temporary));
  EXPECT_EQ(runtime_->arena(), nullptr) << "of a plan";
  const RuntimeStats stats = runtime_->Stats();
  EXPECT_EQ(stats.arena_live_bytes, 2 * kMiB + 512);
  EXPECT_EQ(stats.dynamic_hits, 3u);
  EXPECT_EQ(stats.upstream, 2u);
  EXPECT_EQ(stats.live_bytes, 4 * kMiB + 512);
  for (void* const block : {weights, small, activation, state, temporary}) runtime_->Free(block);
  EXPECT_EQ(runtime_->Stats().live_bytes, 0u);
  EXPECT_EQ(runtime_->Stats().unknown_frees, 0u);
}

TEST_F(SetUpTest, TheEndOfInitAndAPassBeginTheLoop) {
  runtime_->OnMark({.kind = MarkKind::kInit, .edge = MarkEdge::kEnd, .name = {}});
  void* const first = Allocate(kMiB);
  EXPECT_FALSE(runtime_->Owns(first));
  runtime_->Free(first);
  StartWaiting();
  runtime_->OnMark({.kind = MarkKind::kMicrobatch, .pass = Pass::kForward, .name = {}});
  void* const second = Allocate(kMiB);
  EXPECT_FALSE(runtime_->Owns(second));
  runtime_->Free(second);
}

TEST_F(SetUpTest, ABackwardPassThatNothingAnnouncedIsInTheLoop) {
  void* const weights = Allocate(kMiB);
  void* const activation = Allocate(3 * Chunk());
  std::thread engine([&] {  // autograd runs it on a thread of its own
    t_pass = RunningPass::kBackward;
    void* const gradient = Allocate(kMiB);
    EXPECT_FALSE(runtime_->Owns(gradient));
    runtime_->Free(gradient);
  });
  engine.join();
  runtime_->Free(activation);
  runtime_->OnMark({.kind = MarkKind::kOptimizer, .name = {}});
  EXPECT_EQ(Mapped(), RoundUp(kMiB, Chunk())) << "what set-up does not leave goes back";
  MakeState(MarkEdge::kBegin);
  void* const state = Allocate(kMiB);
  MakeState(MarkEdge::kEnd);
  EXPECT_TRUE(runtime_->Owns(state));
  runtime_->Free(state);
  runtime_->Free(weights);
}

TEST_F(SetUpTest, AForwardPassAgainIsInTheLoopToo) {
  t_pass = RunningPass::kForwardAgain;
  void* const activation = Allocate(kMiB);
  t_pass = RunningPass::kOther;
  void* const temporary = Allocate(kMiB);
  EXPECT_FALSE(runtime_->Owns(activation));
  EXPECT_FALSE(runtime_->Owns(temporary));
  runtime_->Free(activation);
  runtime_->Free(temporary);
}

TEST_F(SetUpTest, WhatIsEvaluatedFirstIsNotThere) {
  runtime_->OnMark({.kind = MarkKind::kFence, .name = "eval"});
  void* const evaluated = Allocate(kMiB);
  runtime_->OnMark({.kind = MarkKind::kFence, .edge = MarkEdge::kEnd, .name = "eval"});
  void* const weights = Allocate(kMiB);
  EXPECT_FALSE(runtime_->Owns(evaluated));
  EXPECT_TRUE(runtime_->Owns(weights));
  runtime_->Free(evaluated);
  runtime_->Free(weights);
}

TEST_F(SetUpTest, WhatIsCapturedIsUpstreams) {
  void* const captured = runtime_->Allocate(kMiB, 0, Origin::kCaptured);
  EXPECT_FALSE(runtime_->Owns(captured));
  runtime_->Free(captured);
}

TEST_F(SetUpTest, BlocksLieSideBySideAndGapsAreFilledByTheTightest) {
  std::vector<char*> blocks;
  for (int i = 0; i < 8; ++i) blocks.push_back(static_cast<char*>(Allocate((i % 2 == 0 ? 64 : 256) * kKiB)));
  for (int i = 1; i < 8; ++i) EXPECT_EQ(blocks[i] - blocks[i - 1], ((i - 1) % 2 == 0 ? 64 : 256) * 1024);
  runtime_->Free(blocks[1]);
  runtime_->Free(blocks[4]);
  EXPECT_EQ(Allocate(60 * kKiB), blocks[4]);
  EXPECT_EQ(Allocate(60 * kKiB), blocks[1]);
}

TEST_F(SetUpTest, WhatSetUpDoesNotLeaveGoesBackWhereTheLoopBegins) {
  void* const weights = Allocate(kMiB);
  runtime_->Free(Allocate(3 * Chunk()));
  EXPECT_GE(Mapped(), 3 * Chunk());
  Iteration();
  EXPECT_EQ(Mapped(), RoundUp(kMiB, Chunk()));
  runtime_->Free(weights);
}

TEST_F(SetUpTest, WhatUpstreamCachesGoesBackBeforeStateIsMade) {
  Iteration();
  upstream_.Cache(100 * kMiB);
  MakeState(MarkEdge::kBegin);
  void* const state = Allocate(kMiB);
  MakeState(MarkEdge::kEnd);
  EXPECT_TRUE(runtime_->Owns(state));
  EXPECT_EQ(upstream_.HeldBytes().current, 0u);
  runtime_->Free(state);
}

TEST_F(SetUpTest, WhatCouldNotGoBackBeforeThePlanGoesBackWithWhatKeptIt) {
  Iteration();
  void* const activation = Allocate(60 * kMiB);
  upstream_.Cache(200 * kMiB);
  upstream_.Pin(180 * kMiB);
  MakeState(MarkEdge::kBegin);
  void* const state = Allocate(kMiB);
  MakeState(MarkEdge::kEnd);
  EXPECT_EQ(upstream_.HeldBytes().current, 240 * kMiB);
  upstream_.Pin(50 * kMiB);
  ASSERT_EQ(runtime_->TakePlan(PlanBuilder().Each(100 * kKiB).Build(), 0), "");
  EXPECT_EQ(upstream_.HeldBytes().current, 110 * kMiB);
  Iteration();
  runtime_->Free(activation);
  upstream_.Cache(110 * kMiB);
  upstream_.Pin(0);
  runtime_->Free(Allocate(100 * kKiB));
  EXPECT_EQ(upstream_.HeldBytes().current, 0u);
  runtime_->Free(state);
}

TEST_F(SetUpTest, ThePlanHasAnArenaOfItsOwnAndWeightsStayInTheirs) {
  void* const weights = Allocate(kMiB);
  void* const buffer = Allocate(2 * Chunk());
  FillPattern(weights, kMiB, 1);
  for (int i = 0; i < 3; ++i) {
    Iteration();
    runtime_->Free(Allocate(100 * kKiB));
  }
  ASSERT_EQ(runtime_->TakePlan(PlanBuilder().Each(100 * kKiB).Build(), 0), "");
  ASSERT_EQ(runtime_->spaces().size(), 2u);
  for (int i = 0; i < 3; ++i) {
    Iteration();
    void* const block = Allocate(100 * kKiB);
    EXPECT_EQ(runtime_->SpaceOf(block), runtime_->spaces().back());
    EXPECT_EQ(runtime_->SpaceOf(weights), runtime_->spaces().front());
    FillPattern(block, 100 * kKiB, 2);
    EXPECT_TRUE(HasPattern(weights, kMiB, 1));
    runtime_->Free(block);
  }
  EXPECT_EQ(runtime_->Stats().steady.hits, 3u);
  EXPECT_FALSE(runtime_->Stats().gave_up);
  const Bytes before = Mapped();
  runtime_->Free(buffer);
  Iteration();
  EXPECT_EQ(Mapped(), before - 2 * Chunk()) << "what is idle there goes back between iterations";
  runtime_->Free(weights);
  Iteration();
  EXPECT_EQ(Mapped(), 0u);
  EXPECT_EQ(runtime_->Stats().unknown_frees, 0u);
}

TEST_F(SetUpTest, WhatLivesIsHeldWheneverUpstreamHadItsPeak) {
  Iteration();
  runtime_->Free(Allocate(8 * kMiB));
  MakeState(MarkEdge::kBegin);
  void* const state = Allocate(4 * kMiB);
  MakeState(MarkEdge::kEnd);
  runtime_->Free(Allocate(8 * kMiB));
  EXPECT_EQ(runtime_->Stats().peak_live_bytes, 12 * kMiB);
  EXPECT_GE(runtime_->Stats().held_peak_bytes, 12 * kMiB);
  EXPECT_LE(runtime_->Stats().efficiency, 1.0);
  runtime_->Free(state);
}

TEST_F(SetUpTest, AFullDeviceIsUpstreamsBusiness) {
  StartWaiting(4 * kPage);
  void* const weights = Allocate(64 * kMiB);
  EXPECT_FALSE(runtime_->Owns(weights));
  runtime_->Free(weights);
}

TEST_F(SetUpTest, WhatIsIdleGoesBackWhenUpstreamIsOutOfMemory) {
  void* const weights = Allocate(kMiB);
  void* const buffer = Allocate(2 * Chunk());
  Iteration();
  runtime_->Free(buffer);
  const Bytes before = Mapped();
  upstream_.FailNext(1);
  void* const block = Allocate(kMiB);
  EXPECT_NE(block, nullptr);
  EXPECT_EQ(Mapped(), before - 2 * Chunk());
  runtime_->Free(block);
  runtime_->Free(weights);
}

}  // namespace
}  // namespace stalloc
