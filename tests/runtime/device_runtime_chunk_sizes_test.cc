// Chunks of an arena that is large enough to have them in several sizes; small blocks for which chunks move as well.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <utility>

#include "planner/trial/instant_fence.h"
#include "tests/runtime/alloc_fixture.h"

namespace stalloc {
namespace chunk_sizes {

constexpr Bytes kHeight = 512 * kMiB;  // chunks of 64 and 512 KiB
constexpr Bytes kSlot = kHeight / 8;

// Weights in the lower half; in the upper one four slots side by side.
class ChunkSizesTest : public AllocTest {
 protected:
  static DevicePlan WeightsAndFourSlots() {
    PlanBuilder plan;
    plan.Persistent(kHeight / 2);
    for (int i = 0; i < 4; ++i) plan.Each(kSlot);
    return plan.Build();
  }
  void SetUp() override {
    Start(WeightsAndFourSlots(), kHeight, kPage, nullptr, /*dynamic=*/true);  // the device has no more
    weights_ = Allocate(kHeight / 2);
    Iteration();
  }
  // A byte in each of the block's pages says whose it is.
  void* Filled(Bytes bytes, char key) {
    auto* const block = static_cast<char*>(Allocate(bytes));
    EXPECT_TRUE(runtime_->Owns(block));
    for (Bytes at = 0; at < bytes; at += kPage) block[at] = key;
    return block;
  }
  void Drop(void* block, Bytes bytes, char key) {
    Bytes wrong = 0;
    for (Bytes at = 0; at < bytes; at += kPage) wrong += static_cast<char*>(block)[at] == key ? 0 : 1;
    EXPECT_EQ(wrong, 0u) << key;
    runtime_->Free(block);
  }
  [[nodiscard]] Bytes ChunksFrom(Offset begin, Offset end, Bytes bytes) const {
    const auto chunks = runtime_->arena()->Chunks();
    return static_cast<Bytes>(std::count_if(chunks.begin(), chunks.end(), [&](const Arena::Range& chunk) {
      return chunk.offset >= begin && chunk.offset < end && chunk.bytes == bytes;
    }));
  }

  void* weights_ = nullptr;
};

TEST_F(ChunkSizesTest, WhatMovesComesBackAndWhatStaysDoesNotMove) {
  constexpr Bytes kLarge = kSlot + kSlot / 2;
  for (int round = 0; round < 3; ++round) {
    void* const first = Filled(kSlot, 'a');
    void* const second = Filled(kSlot, 'b');
    void* const third = Filled(kSlot, 'c');
    Drop(second, kSlot, 'b');
    void* const large = Filled(kLarge, 'l');  // what idle slots have, in one piece
    EXPECT_EQ(runtime_->Stats().arena_bytes, kHeight);
    Drop(large, kLarge, 'l');
    void* const fourth = Filled(kSlot, 'd');
    EXPECT_EQ(runtime_->Stats().arena_bytes, kHeight);
    Drop(first, kSlot, 'a');
    Drop(third, kSlot, 'c');
    Drop(fourth, kSlot, 'd');
    Iteration();
  }
  EXPECT_EQ(driver_->GetCounts().handle_bytes, kHeight);
  EXPECT_EQ(runtime_->Stats().planned_hits, 1u + 3 * 4);
  EXPECT_EQ(ChunksFrom(0, kHeight / 2, 512 * kKiB), kHeight / 2 / (512 * kKiB)) << "weights stay where they are";
  EXPECT_EQ(runtime_->engine()->CheckInvariants(), "");
}

// The device has much more at first.
class PlentyTest : public ChunkSizesTest {
 protected:
  static constexpr Bytes kDevice = 8 * kGiB;
  static constexpr Bytes kCoarse = kMiB;
  static constexpr Bytes kFine = 64 * kKiB;
  static constexpr Bytes kResting = 512 * kKiB;

  void SetUp() override {
    Start(WeightsAndFourSlots(), kDevice, kPage, &fence_, /*dynamic=*/true);
    ExpectChunks(kCoarse);
  }
  // Of the cycle; weights have their own.
  void ExpectChunks(Bytes bytes) {
    EXPECT_EQ(ChunksFrom(0, kHeight / 2, kResting), kHeight / 2 / kResting);
    EXPECT_EQ(ChunksFrom(kHeight / 2, kHeight, bytes), kHeight / 2 / bytes);
  }
  void FillDevice() {
    MemoryInfo info;
    ASSERT_TRUE(driver_->GetMemoryInfo(&info).ok());
    PhysicalHandle handle = 0;
    ASSERT_TRUE(driver_->Create(info.free, &handle).ok());
  }
  // Where nothing is in the way the slots lie as planned.
  void FillSlots() {
    std::array<void*, 4> slots{};
    for (void*& slot : slots) slot = Filled(kSlot, 's');
    for (void* const slot : slots) Drop(slot, kSlot, 's');
    Iteration();
  }

  InstantFence fence_;
};

TEST_F(PlentyTest, OnceTheCardIsFullIdleMemoryComesAgainInSmallChunks) {
  weights_ = Filled(kHeight / 2, 'w');
  Iteration();
  FillDevice();
  std::array<void*, 4> slots{};
  for (void*& slot : slots) slot = Filled(kSlot, 's');
  void* const more = Allocate(kHeight / 64);
  EXPECT_FALSE(runtime_->Owns(more)) << "the card is full";
  ExpectChunks(kCoarse);
  runtime_->Free(more);
  Drop(slots[1], kSlot, 's');
  Drop(slots[3], kSlot, 's');
  void* const large = Filled(2 * kSlot, 'l');
  EXPECT_EQ(ChunksFrom(0, 2 * kHeight, kCoarse), 2 * kSlot / kCoarse) << "under the first and the third";
  EXPECT_EQ(runtime_->Stats().arena_bytes, kHeight);
  Drop(large, 2 * kSlot, 'l');
  Drop(slots[0], kSlot, 's');
  Drop(slots[2], kSlot, 's');
  Iteration();
  FillSlots();
  ExpectChunks(kFine);
  EXPECT_EQ(runtime_->Stats().arena_bytes, kHeight);
  Drop(weights_, kHeight / 2, 'w');
  EXPECT_EQ(runtime_->engine()->CheckInvariants(), "");
}

// Large chunks are for few calls, not for more memory.
TEST_F(PlentyTest, OfWhatWentBackNoMoreComesAgainThanIsNeeded) {
  weights_ = Filled(kHeight / 2, 'w');
  Iteration();
  EXPECT_EQ(runtime_->EmptyCache(), kHeight / 2);
  void* const first = Filled(kSlot - kCoarse / 2, 'a');
  EXPECT_EQ(runtime_->Stats().arena_bytes, kHeight / 2 + kSlot - kCoarse / 2);
  EXPECT_EQ(ChunksFrom(kHeight / 2, kHeight, kCoarse), kSlot / kCoarse - 1);
  Drop(first, kSlot - kCoarse / 2, 'a');
  Drop(weights_, kHeight / 2, 'w');
}

TEST_F(PlentyTest, WhileAStreamIsCapturedTheyStay) {
  weights_ = Filled(kHeight / 2, 'w');
  Iteration();
  FillDevice();
  device_->SetCapturing(true);
  void* const first = Filled(kSlot, 'a');
  void* const large = Allocate(kHeight);
  EXPECT_FALSE(runtime_->Owns(large));
  ExpectChunks(kCoarse);
  device_->SetCapturing(false);
  Drop(first, kSlot, 'a');
  runtime_->Free(large);
  Iteration();
  FillSlots();
  ExpectChunks(kFine);
  Drop(weights_, kHeight / 2, 'w');
}

TEST_F(PlentyTest, ALimitThatLeavesLittleMakesThemSmallAtOnce) {
  runtime_->SetHeldLimit(kHeight + kHeight / 4);
  weights_ = Filled(kHeight / 2, 'w');
  Iteration();
  FillSlots();
  ExpectChunks(kFine);
  Drop(weights_, kHeight / 2, 'w');
}

TEST_F(PlentyTest, ALimitThatLeavesMuchDoesNot) {
  runtime_->SetHeldLimit(2 * kHeight);
  weights_ = Filled(kHeight / 2, 'w');
  Iteration();
  FillSlots();
  ExpectChunks(kCoarse);
  Drop(weights_, kHeight / 2, 'w');
}

// The arena has outgrown its plan, and half of the plan's slots move to one block and back in every iteration.
class MovesInEveryIterationTest : public ChunkSizesTest {
 protected:
  static constexpr Bytes kLarge = 2 * kSlot;  // two idle slots
  static constexpr Bytes kStays = 4 * kHeight;

  void SetUp() override {
    Start(WeightsAndFourSlots(), kHeight + kStays, kPage, &fence_, /*dynamic=*/true);
    weights_ = Allocate(kHeight / 2);
    Iteration();
    std::array<void*, 4> slots{};
    for (void*& slot : slots) slot = Allocate(kSlot);
    stays_ = Allocate(kStays);
    for (void* const slot : slots) runtime_->Free(slot);
    Iteration();
    Move();
    Iteration();
    ASSERT_GE(runtime_->Stats().arena_bytes, kHeight + kStays);
  }
  void Move() {
    void* const first = Filled(kSlot, 'a');
    void* const second = Filled(kSlot, 'b');
    void* const third = Filled(kSlot, 'c');
    Drop(second, kSlot, 'b');
    void* const large = Filled(kLarge, 'l');
    Drop(large, kLarge, 'l');
    void* const fourth = Filled(kSlot, 'd');
    for (const auto& [block, key] : {std::pair(first, 'a'), std::pair(third, 'c'), std::pair(fourth, 'd')}) {
      Drop(block, kSlot, key);
    }
  }

  InstantFence fence_;
  void* stays_ = nullptr;
};

TEST_F(MovesInEveryIterationTest, ItHoldsNoMoreForThem) {
  for (int i = 0; i < 8; ++i) {
    const std::uint64_t before = runtime_->Stats().lent.times_moved;
    Move();
    EXPECT_GT(runtime_->Stats().lent.times_moved, before);
    Iteration();
  }
  EXPECT_EQ(runtime_->Stats().arena_bytes, kHeight + kStays);
  EXPECT_EQ(runtime_->engine()->CheckInvariants(), "");
}

TEST_F(ChunkSizesTest, WhatComesBackIsWhatIsAskedFor) {
  EXPECT_EQ(runtime_->EmptyCache(), kHeight / 2);
  void* const first = Filled(kSlot, 'a');
  EXPECT_EQ(runtime_->Stats().arena_bytes, kHeight / 2 + kSlot);
  Drop(first, kSlot, 'a');
}

// Blocks of a chunk each, every second one idle, and a request whose size nobody knows, of more than one.
class SmallMovesTest : public AllocTest {
 protected:
  static constexpr int kBlocks = 8;
  static constexpr Bytes kUnit = 512 * kKiB;  // of the driver
  static constexpr Bytes kChunk = 4 * kUnit;  // of an arena of 2 GiB where sizes vary
  static constexpr Bytes kSmall = 5 * kUnit;  // less than a 512th of it
  static constexpr Bytes kWhole = 2 * kGiB;

  // On a card that has `left` bytes more than the plan's.
  void StartWith(StreamFence& fence, Bytes left) {
    PlanBuilder plan;
    for (int i = 0; i < kBlocks; ++i) plan.Each(kChunk);
    plan.EachUnplanned(kChunk);  // something varies
    plan.Each(kWhole - kBlocks * kChunk);
    Start(plan.Build(), kWhole + left, kUnit, &fence, /*dynamic=*/true);
    Iteration();
    for (void*& block : blocks_) block = Allocate(kChunk);
    rest_ = Allocate(kWhole - kBlocks * kChunk);
    for (int i = 1; i < kBlocks; i += 2) runtime_->Free(blocks_[i]);
    runtime_->OnMark({MarkKind::kMicrobatch, MarkEdge::kBegin, Pass::kForward, 0, 0, "", false});
  }
  void End(void* small) {
    for (int i = 0; i < kBlocks; i += 2) runtime_->Free(blocks_[i]);
    runtime_->Free(rest_);
    runtime_->Free(small);
    EXPECT_EQ(runtime_->engine()->CheckInvariants(), "");
  }

  void* blocks_[kBlocks] = {};
  void* rest_ = nullptr;
};

TEST_F(SmallMovesTest, IdleChunksThatTheDeviceIsDoneWithMoveToASmallBlock) {
  InstantFence fence;
  StartWith(fence, 0);
  void* const small = Allocate(kSmall);
  EXPECT_TRUE(runtime_->Owns(small));
  EXPECT_EQ(runtime_->Stats().arena_bytes, kWhole);
  EXPECT_EQ(runtime_->Stats().lent.times_moved, 1u);
  EXPECT_EQ(runtime_->Stats().lent.times_waited, 0u);
  End(small);
}

TEST_F(SmallMovesTest, WhatAFullCardHasLeftIsSpentBeforeTheTimeOfCalls) {
  InstantFence fence;
  StartWith(fence, kGiB / 2);
  void* const small = Allocate(kSmall);
  EXPECT_EQ(runtime_->Stats().arena_bytes, kWhole + kSmall);
  EXPECT_EQ(runtime_->Stats().lent.times_moved, 0u);
  End(small);
}

// All but what kernels need that are loaded late: a 256th of the card.
TEST_F(SmallMovesTest, WhatTheDriverNeedsIsLeftAsLongAsMemoryCanMove) {
  InstantFence fence;
  StartWith(fence, kSmall + 4 * kMiB);
  void* const small = Allocate(kSmall);
  EXPECT_EQ(runtime_->Stats().arena_bytes, kWhole);
  EXPECT_EQ(runtime_->Stats().lent.times_waited, 0u);
  End(small);
}

TEST_F(SmallMovesTest, ForASmallBlockNobodyWaits) {
  NeverFence fence;
  StartWith(fence, kGiB / 2);
  void* const small = Allocate(kSmall);
  EXPECT_TRUE(runtime_->Owns(small));
  EXPECT_EQ(runtime_->Stats().arena_bytes, kWhole + kSmall);
  EXPECT_EQ(runtime_->Stats().lent.times_moved, 0u);
  End(small);
}

}  // namespace chunk_sizes
}  // namespace stalloc
