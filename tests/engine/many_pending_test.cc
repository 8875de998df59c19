// Freed blocks whose streams are not done: many at once, of many streams, and none that can be asked.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "allocator/engine/order/freed_blocks.h"
#include "allocator/engine/order/stream_clocks.h"
#include "allocator/engine/plan_engine.h"
#include "tests/engine/fake_fence.h"

namespace stalloc {
namespace many_pending_test {

TEST(StreamFenceLessTest, WithoutAFenceARecordedBlockIsNeverReused) {
  PlanEngine engine(TurnsPlan(1, 10), kBase, nullptr);
  engine.OnMark(MarkOf(MarkKind::kIteration));
  void* block = engine.Allocate(kBlock, 0).pointer;
  engine.RecordStream(block, 11);
  EXPECT_EQ(engine.Free(block), kBlock);
  engine.OnMark(MarkOf(MarkKind::kIteration));
  EXPECT_EQ(engine.Allocate(kBlock, 0).reason, MissReason::kOccupied);
  EXPECT_EQ(engine.Stats().retained_blocks, 1u);
  EXPECT_EQ(engine.CheckInvariants(), "");
}

// Done out of order: each block comes back when, and only when, its own streams are done.
TEST(ManyPendingTest, BlocksComeBackOneByOneAsTheirStreamsFinish) {
  constexpr std::uint32_t kSlots = 40;
  const auto StreamOf = [](StreamHandle use, std::uint32_t i) { return 1000 * (use + 1) + i; };
  FakeFence fence;
  PlanEngine engine(TurnsPlan(kSlots, 1), kBase, &fence);
  engine.OnMark(MarkOf(MarkKind::kIteration));
  std::vector<void*> blocks;
  for (std::uint32_t i = 0; i < kSlots; ++i) {
    void* block = engine.Allocate(kBlock * (i + 1), 0).pointer;
    ASSERT_NE(block, nullptr);
    for (StreamHandle use = 0; use <= i % 3; ++use) engine.RecordStream(block, StreamOf(use, i));
    blocks.push_back(block);
  }
  for (void* block : blocks) engine.Free(block);
  for (std::uint32_t done = 0; done < kSlots; ++done) {
    const std::uint32_t i = done * 7 % kSlots;  // 7 and 40 have no common factor
    for (StreamHandle use = 0; use <= i % 3; ++use) fence.Finish(StreamOf(use, i));
    engine.OnMark(MarkOf(MarkKind::kMicrobatch));
    ASSERT_EQ(engine.Stats().pending_blocks, kSlots - done - 1);
    ASSERT_EQ(engine.FindLive(blocks[i]).bytes, 0u);
    ASSERT_EQ(engine.CheckInvariants(), "");
  }
  EXPECT_EQ(fence.outstanding(), 0u);
}

TEST(ManyPendingTest, ABlockOfManyStreamsComesBack) {
  FakeFence fence;
  PlanEngine engine(TurnsPlan(1, 4), kBase, &fence);
  engine.OnMark(MarkOf(MarkKind::kIteration));
  void* block = engine.Allocate(kBlock, 0).pointer;
  for (StreamHandle stream = 3; stream <= 60; ++stream) engine.RecordStream(block, stream);
  engine.Free(block);
  for (StreamHandle stream = 3; stream <= 60; ++stream) fence.Finish(stream);
  engine.OnMark(MarkOf(MarkKind::kOptimizer));
  EXPECT_EQ(engine.Stats().pending_blocks, 0u);
  EXPECT_EQ(engine.Allocate(kBlock, 0).pointer, block);
}

TEST(ManyPendingTest, MoreStreamsThanARequestWaitsForAreAMissUntilTheyAreDone) {
  FakeFence fence;
  PlanEngine engine(TurnsPlan(1, 4), kBase, &fence);
  engine.OnMark(MarkOf(MarkKind::kIteration));
  void* block = engine.Allocate(kBlock, 0).pointer;
  for (StreamHandle stream = 3; stream <= 3 + StreamNeeds::kMost; ++stream) engine.RecordStream(block, stream);
  engine.Free(block);
  EXPECT_EQ(engine.Allocate(kBlock, 0).reason, MissReason::kOccupied);
  for (StreamHandle stream = 3; stream <= 3 + StreamNeeds::kMost; ++stream) fence.Finish(stream);
  engine.OnMark(MarkOf(MarkKind::kOptimizer));
  EXPECT_EQ(engine.Allocate(kBlock, 0).pointer, block);
}

TEST(ManyStreamsTest, MoreThanCanBeToldApartAreNotServed) {
  FakeFence fence;
  PlanEngine engine(TurnsPlan(1, 1000), kBase, &fence);
  engine.OnMark(MarkOf(MarkKind::kIteration));
  for (StreamHandle stream = 100; stream < 100 + StreamClocks::kMaxStreams; ++stream) {
    void* block = engine.Allocate(kBlock, stream).pointer;
    ASSERT_NE(block, nullptr);
    engine.Free(block);
  }
  EXPECT_EQ(engine.Allocate(kBlock, 99).reason, MissReason::kStream);
  void* block = engine.Allocate(kBlock, 100).pointer;
  engine.RecordStream(block, 99);
  engine.Free(block);
  EXPECT_EQ(engine.Allocate(kBlock, 100).reason, MissReason::kOccupied);
  EXPECT_EQ(engine.Stats().retained_blocks, 1u);
}

TEST(ManyPendingTest, MoreUsesThanCanBeNotedLoseMemoryButNeverData) {
  FakeFence fence;
  PlanEngine engine(TurnsPlan(1, 4), kBase, &fence);
  engine.OnMark(MarkOf(MarkKind::kIteration));
  void* block = engine.Allocate(kBlock, 0).pointer;
  for (StreamHandle stream = 3; stream < 2 + StreamClocks::kMaxStreams; ++stream) engine.RecordStream(block, stream);
  EXPECT_EQ(engine.Stats().retained_blocks, 0u);
  engine.RecordStream(block, 3);  // known already
  EXPECT_EQ(engine.Stats().retained_blocks, 0u);
  engine.RecordStream(block, 1'000'000);
  ASSERT_EQ(engine.Stats().retained_blocks, 1u);
  engine.Free(block);
  engine.OnMark(MarkOf(MarkKind::kOptimizer));
  EXPECT_EQ(engine.Allocate(kBlock, 0).reason, MissReason::kOccupied);
  EXPECT_EQ(engine.CheckInvariants(), "");
}

}  // namespace many_pending_test
}  // namespace stalloc
