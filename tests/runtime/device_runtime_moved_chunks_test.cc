// Chunks of the arena that move to a block which fits nowhere, and back to the slots that they were lent by.
#include <gtest/gtest.h>

#include <vector>

#include "allocator/driver/forwarding_driver.h"
#include "planner/trial/instant_fence.h"
#include "tests/runtime/alloc_fixture.h"
#include "tests/runtime/pattern.h"

namespace stalloc {
namespace moved_chunks {

constexpr Bytes kSlot = 2 * kMiB;
constexpr Bytes kLarge = 3 * kMiB + 2 * kPage;
constexpr Bytes kHeight = 4 * kSlot;

// Four slots side by side, in chunks of 64 KiB; the device has no more.
class MovedChunksTest : public AllocTest {
 protected:
  void SetUp() override { StartWith(kHeight); }
  static DevicePlan FourSlots() {
    PlanBuilder plan;
    for (int i = 0; i < 4; ++i) plan.Each(kSlot);
    return plan.Build();
  }
  void StartWith(Bytes capacity, const DevicePlan& plan = FourSlots(), StreamFence* fence = nullptr) {
    Start(plan, capacity, kPage, fence, /*dynamic=*/true);
    ASSERT_EQ(runtime_->Stats().arena_bytes, kHeight);
  }
  // The iteration's first three blocks, of which the second is freed: [0] and [2] live, [1] and [3] are idle.
  void Hole() {
    Iteration();
    for (int i = 0; i < 3; ++i) Fill(i);
    Drop(1);
  }
  void Fill(int i) {
    blocks_[i] = Allocate(kSlot);
    ASSERT_TRUE(runtime_->Owns(blocks_[i]));
    FillPattern(blocks_[i], kSlot, static_cast<unsigned char>(i + 1));
  }
  void Drop(int i) {
    EXPECT_TRUE(HasPattern(blocks_[i], kSlot, static_cast<unsigned char>(i + 1))) << i;
    runtime_->Free(blocks_[i]);
    blocks_[i] = nullptr;
  }
  void Mark() { runtime_->OnMark({MarkKind::kMicrobatch, MarkEdge::kBegin, Pass::kForward, 0, 0, "", false}); }
  void* Large(Bytes bytes = kLarge) {
    void* const block = Allocate(bytes);
    FillPattern(block, bytes, 99);
    return block;
  }
  [[nodiscard]] IdleChunks::Counts Counts() const { return runtime_->Stats().lent; }

  void* blocks_[4] = {};
};

TEST_F(MovedChunksTest, ALargeBlockThatFitsNowhereCostsNoMemory) {
  Hole();
  void* const large = Large();
  EXPECT_TRUE(runtime_->Owns(large));
  EXPECT_EQ(runtime_->Stats().arena_bytes, kHeight);
  EXPECT_EQ(driver_->GetCounts().handle_bytes, kHeight);
  EXPECT_EQ(Counts().times_moved, 1u);
  EXPECT_EQ(Counts().moved_bytes, kLarge);
  EXPECT_EQ(Counts().times_grown, 0u);
  EXPECT_TRUE(HasPattern(large, kLarge, 99));
  Drop(0);
  Drop(2);
  runtime_->Free(large);
  EXPECT_EQ(runtime_->engine()->CheckInvariants(), "");
}

TEST_F(MovedChunksTest, ASlotThatLentItsChunksHasThemBackWhenItNeedsThem) {
  Hole();
  void* const large = Large();
  runtime_->Free(large);
  Fill(3);
  EXPECT_EQ(runtime_->Stats().arena_bytes, kHeight);
  EXPECT_EQ(Misses(runtime_->Stats(), MissReason::kUnbacked), 0u);
  EXPECT_EQ(runtime_->Stats().planned_hits, 4u);
  for (const int i : {0, 2, 3}) Drop(i);
  for (int round = 0; round < 3; ++round) {
    Iteration();
    for (int i = 0; i < 4; ++i) Fill(i);
    for (int i = 0; i < 4; ++i) Drop(i);
  }
  EXPECT_EQ(runtime_->Stats().arena_bytes, kHeight);
  EXPECT_EQ(runtime_->Stats().planned_hits, 16u);
  EXPECT_EQ(runtime_->engine()->CheckInvariants(), "");
}

// Counts the calls that make mapped memory usable.
class AccessCounter final : public ForwardingDriver {
 public:
  using ForwardingDriver::ForwardingDriver;
  DriverStatus SetAccess(Address address, Bytes bytes) noexcept override {
    ++calls;
    return ForwardingDriver::SetAccess(address, bytes);
  }
  int calls = 0;
};

TEST_F(MovedChunksTest, ChunksThatComeBackSideBySideAreMadeUsableByOneCall) {
  const DevicePlan plan = FourSlots();
  runtime_ = nullptr;  // its memory goes back
  AccessCounter counter(*driver_);
  runtime_ = std::make_unique<DeviceRuntime>(DeviceRuntime::Parts{
      .device = kCpuDevice, .upstream = &upstream_, .driver = &counter, .plan = &plan, .dynamic = true});
  Hole();
  const int at_first = counter.calls;
  void* const large = Large();
  EXPECT_EQ(counter.calls, at_first + 1);
  runtime_->Free(large);
  Fill(3);  // lent most of its 32 chunks
  EXPECT_EQ(Counts().times_moved, 2u);
  EXPECT_EQ(counter.calls, at_first + 2);
  for (const int i : {0, 2, 3}) Drop(i);
  EXPECT_EQ(runtime_->engine()->CheckInvariants(), "");
  runtime_ = nullptr;  // before its driver
}

TEST_F(MovedChunksTest, WhatIsInUseTogetherIsHeldTogether) {
  StartWith(3 * kSlot + kLarge);
  Hole();
  void* const large = Large();
  Fill(3);
  EXPECT_EQ(runtime_->Stats().arena_bytes, 3 * kSlot + kLarge) << "slot 1 is due in the next iteration, and lent most";
  EXPECT_TRUE(HasPattern(large, kLarge, 99));
  for (const int i : {0, 2, 3}) Drop(i);
  runtime_->Free(large);
}

TEST_F(MovedChunksTest, TheChunksThatAreDueLastGoFirst) {
  StartWith(kHeight + 2 * kPage);
  Hole();
  void* const large = Allocate(kSlot + 2 * kPage);  // as much as slot 1 has, and two pages of what is due next
  ASSERT_TRUE(runtime_->Owns(large));
  Fill(3);
  EXPECT_EQ(runtime_->Stats().arena_bytes, kHeight + 2 * kPage)
      << "all of slot 1, which is due in the next iteration, went";
  for (const int i : {0, 2, 3}) Drop(i);
  runtime_->Free(large);
}

TEST_F(MovedChunksTest, WhatAnEmptiedCacheGaveBackIsMappedAndNotMoved) {
  Iteration();
  EXPECT_EQ(runtime_->EmptyCache(), kHeight);
  for (int i = 0; i < 4; ++i) {
    Fill(i);
    Drop(i);
  }
  EXPECT_EQ(Counts().times_moved, 0u) << "moving is for what would be held beyond that";
  EXPECT_EQ(runtime_->Stats().arena_bytes, kHeight);
}

TEST_F(MovedChunksTest, AnEmptiedCacheInEveryIterationHoldsNoMoreInTheEnd) {
  for (int round = 0; round < 15; ++round) {
    Hole();
    void* const large = Large();
    EXPECT_TRUE(runtime_->Owns(large));
    runtime_->Free(large);
    Fill(3);
    for (const int i : {0, 2, 3}) Drop(i);
    ASSERT_LE(runtime_->Stats().arena_bytes, kHeight) << round;
    ASSERT_LE(Counts().times_moved, static_cast<std::uint64_t>(2 * (round + 1)));
    ASSERT_GT(runtime_->EmptyCache(), 0u);
  }
  EXPECT_EQ(runtime_->Stats().planned_hits, 60u);
  EXPECT_EQ(driver_->GetCounts().handle_bytes, 0u);
}

TEST_F(MovedChunksTest, NothingMovesWhileTheDeviceMayNotBeSynchronised) {
  StartWith(kGiB);
  device_->SetCapturing(true);  // a capture is open
  Hole();
  void* const large = Large();
  EXPECT_TRUE(runtime_->Owns(large));
  EXPECT_EQ(Counts().times_moved, 0u);
  EXPECT_EQ(runtime_->Stats().arena_bytes, kHeight + kLarge);
  runtime_->Free(large);
  Drop(0);
  Drop(2);
}

// Whoever waits for the whole device need not know its streams.
TEST_F(MovedChunksTest, BlocksThatAnotherStreamMayStillUseGiveTheirChunksBehindAWait) {
  NeverFence fence;
  StartWith(kHeight, FourSlots(), &fence);
  Iteration();
  for (int i = 0; i < 3; ++i) Fill(i);
  runtime_->RecordStream(blocks_[1], 7);
  Drop(1);
  void* const large = Large();
  EXPECT_TRUE(runtime_->Owns(large));
  EXPECT_EQ(Counts().times_waited, 1u);
  EXPECT_EQ(Counts().moved_bytes, kLarge);
  EXPECT_EQ(runtime_->Stats().arena_bytes, kHeight);
  runtime_->Free(large);
  Drop(0);
  Drop(2);
}

// To the large block, back to the fourth slot, and back to the second in the next round. Marks tell what the device is
// done with.
TEST_F(MovedChunksTest, ChunksThatTheDeviceIsDoneWithMoveWithoutAWait) {
  InstantFence instant;
  NeverFence never;
  for (StreamFence* const fence : {static_cast<StreamFence*>(&instant), static_cast<StreamFence*>(&never)}) {
    StartWith(kHeight, FourSlots(), fence);
    for (std::uint64_t round = 1; round <= 4; ++round) {
      Hole();
      runtime_->OnMark({MarkKind::kMicrobatch, MarkEdge::kBegin, Pass::kForward, 0, 0, "", false});
      void* const large = Large();
      runtime_->OnMark({MarkKind::kMicrobatch, MarkEdge::kBegin, Pass::kBackward, 0, 0, "", false});
      EXPECT_TRUE(HasPattern(large, kLarge, 99));
      runtime_->Free(large);
      Fill(3);
      for (const int i : {0, 2, 3}) Drop(i);
      EXPECT_EQ(Counts().times_moved, 3 * round - 1);
      // The fourth slot's chunks come from the large block, which was freed after the last mark; and before the very
      // first move nothing was lent, so that marks recorded nothing. Without events one wait serves two moves.
      EXPECT_EQ(Counts().times_waited, fence == &instant ? round + 1 : 2 * round);
    }
    EXPECT_EQ(runtime_->Stats().arena_bytes, kHeight);
    EXPECT_EQ(runtime_->engine()->CheckInvariants(), "");
  }
}

TEST_F(MovedChunksTest, AFewMovesInEveryIterationAreNoReasonToGrow) {
  for (int round = 0; round < 15; ++round) {
    Hole();
    void* const large = Large();  // takes chunks of slot 1, and of 3
    EXPECT_TRUE(HasPattern(large, kLarge, 99));
    runtime_->Free(large);
    Fill(3);
    for (const int i : {0, 2, 3}) Drop(i);
    ASSERT_EQ(runtime_->Stats().arena_bytes, kHeight) << round;
  }
  EXPECT_EQ(runtime_->Stats().planned_hits, 60u);
  EXPECT_GE(Counts().times_moved, 15u);
}

// The plan, and one request more, whose slot is where those of the first ones are.
DevicePlan AndOneOverTheFirst(DevicePlan plan, Bytes bytes) {
  Entry entry;
  entry.bytes = entry.min_bytes = entry.max_bytes = BlockBytes(bytes);
  entry.expected_life = 1;
  entry.slot = static_cast<std::uint32_t>(plan.slots.size());
  plan.slots.push_back({0, entry.bytes});
  plan.cycle[0].entries.push_back(entry);
  return plan;
}

TEST_F(MovedChunksTest, ChunksMoveToALargeBlockThatFindsItsSlotTaken) {
  StartWith(kHeight, AndOneOverTheFirst(FourSlots(), kLarge));
  Hole();
  Fill(3);
  Drop(3);
  void* const large = Large();  // the first block is still in its slot
  EXPECT_EQ(runtime_->Stats().arena_bytes, kHeight);
  EXPECT_EQ(Counts().times_moved, 1u);
  EXPECT_TRUE(HasPattern(large, kLarge, 99));
  runtime_->Free(large);
  Drop(0);
  Drop(2);
}

TEST_F(MovedChunksTest, IdlePiecesMoveToASmallBlockThatFindsItsSlotTaken) {
  constexpr Bytes kSmall = kPage + kPage / 2;
  constexpr Bytes kTwice = 2 * kHeight;
  constexpr int kPages = 8;
  PlanBuilder plan;
  for (int i = 0; i < kPages; ++i) plan.Each(kPage);
  plan.Each(kTwice - kPages * kPage);
  Start(AndOneOverTheFirst(plan.Build(), kSmall), kTwice, kPage, nullptr, /*dynamic=*/true);
  Iteration();
  void* blocks[kPages + 1];
  for (int i = 0; i <= kPages; ++i) blocks[i] = Allocate(i < kPages ? kPage : kTwice - kPages * kPage);
  for (int i = 1; i < kPages; i += 2) runtime_->Free(blocks[i]);
  void* const displaced = Allocate(kSmall);
  EXPECT_TRUE(runtime_->Owns(displaced));
  EXPECT_EQ(Counts().times_moved, 1u);
  EXPECT_EQ(runtime_->Stats().arena_bytes, kTwice);
  for (int i = 0; i < kPages; i += 2) runtime_->Free(blocks[i]);
  runtime_->Free(blocks[kPages]);
  runtime_->Free(displaced);
  EXPECT_EQ(runtime_->engine()->CheckInvariants(), "");
}

TEST_F(MovedChunksTest, AFullDeviceIsNoReasonToMissWhileChunksLieIdle) {
  StartWith(kHeight);
  Hole();
  void* const large = Large();
  EXPECT_TRUE(runtime_->Owns(large));
  EXPECT_EQ(driver_->GetCounts().handle_bytes, kHeight);
  void* const more = Allocate(kSlot);  // the fourth slot: nothing is left
  EXPECT_FALSE(runtime_->Owns(more));
  runtime_->Free(more);
  runtime_->Free(large);
  Drop(0);
  Drop(2);
}

}  // namespace moved_chunks
}  // namespace stalloc
