// IdleChunks by itself: what it gives back, brings back and moves, for each Growth, and when the driver refuses.
#include <gtest/gtest.h>

#include <vector>

#include "planner/trial/instant_fence.h"
#include "tests/backing/backing_fixture.h"
#include "tests/engine/fake_fence.h"

namespace stalloc {
namespace {

using enum ArenaBacking::Growth;

class IdleChunksTest : public BackingTest {
 protected:
  static constexpr Bytes kLarge = 6 * kPage;  // of two idle slots, and a part of each stays

  void SetUp() override { Start(); }
  bool Above(Bytes bytes, ArenaBacking::Growth growth) {
    return chunks_->EnsureBacked(kHeight, bytes, /*now=*/0, growth);
  }
};

TEST_F(IdleChunksTest, WhatNoBlockLivesInGoesBackAndComesAgainWhenItsSlotIsDue) {
  EverySecond();
  EXPECT_EQ(chunks_->GiveBack(), 2 * kSlot);
  EXPECT_EQ(arena_->mapped_bytes(), 2 * kSlot);
  EXPECT_EQ(chunks_->Spare(), 2 * kSlot);
  EXPECT_EQ(chunks_->GetCounts().lent_bytes, 2 * kSlot);
  EXPECT_EQ(chunks_->GiveBack(), 0u) << "once";
  EXPECT_EQ(chunks_->GetCounts().times_given_back, 1u);
  ExpectWhole();
  DropAll();
  Iteration();
  EXPECT_TRUE(FillTo(3));
  EXPECT_EQ(chunks_->GetCounts().times_mapped_again, 2u) << "slots 1 and 3";
  EXPECT_EQ(chunks_->GetCounts().lent_bytes, 0u);
  EXPECT_EQ(chunks_->Spare(), 0u);
  ExpectWhole();
}

TEST_F(IdleChunksTest, NothingGoesBackWhileTheDeviceCannotBeWaitedFor) {
  EverySecond();
  driver_->capturing = true;
  EXPECT_EQ(chunks_->GiveBack(), 0u);
  EXPECT_EQ(arena_->mapped_bytes(), kHeight);
  DropAll();
  Iteration();
  EXPECT_TRUE(FillTo(3)) << "nothing stays withdrawn";
  EXPECT_EQ(chunks_->GetCounts().times_mapped_again, 0u);
}

TEST_F(IdleChunksTest, WithinSpareWhatIsAskedForIsMappedAndNothingMoves) {
  EverySecond();
  ASSERT_EQ(chunks_->GiveBack(), 2 * kSlot);
  EXPECT_TRUE(chunks_->EnsureBacked(kSlot, kPage + 512, 0, kSpare));
  EXPECT_EQ(arena_->mapped_bytes(), 2 * kSlot + 2 * kPage) << "whole chunks";
  EXPECT_TRUE(chunks_->EnsureBacked(kSlot, 2 * kPage, 0, kSpare)) << "it is there";
  EXPECT_FALSE(Above(2 * kSlot, kSpare)) << "more than was held";
  EXPECT_EQ(arena_->mapped_bytes(), 2 * kSlot + 2 * kPage);
  EXPECT_TRUE(Above(kSlot, kSpare));
  EXPECT_EQ(arena_->mapped_bytes(), 3 * kSlot + 2 * kPage);
  EXPECT_EQ(chunks_->GetCounts().times_moved, 0u);
  ExpectWhole();
}

TEST_F(IdleChunksTest, WhereNoMoreIsToBeHadIdleChunksMove) {
  Start(nullptr, kHeight);
  EverySecond();
  EXPECT_FALSE(Above(kLarge, kSpare));
  EXPECT_FALSE(Above(kLarge, kForbidden)) << "without a wait";
  EXPECT_EQ(chunks_->GetCounts().times_moved, 0u);
  EXPECT_TRUE(Above(kLarge, kAllowed));
  EXPECT_EQ(arena_->mapped_bytes(), kHeight);
  EXPECT_EQ(arena_->HolesIn(kHeight, kLarge).size(), 0u);
  EXPECT_EQ(chunks_->GetCounts().times_moved, 1u);
  EXPECT_EQ(chunks_->GetCounts().moved_bytes, kLarge);
  EXPECT_EQ(driver_->waits, 1) << "one for all chunks";
  ExpectWhole();
}

TEST_F(IdleChunksTest, WhereTooLittleIsIdleOnlyWhatMayTakeMoreIsBacked) {
  Start(nullptr, kHeight + kSlot);
  EverySecond();
  EXPECT_FALSE(Above(3 * kSlot, kForbidden));
  EXPECT_EQ(arena_->mapped_bytes(), kHeight);
  EXPECT_TRUE(Above(3 * kSlot, kAllowed));
  EXPECT_EQ(arena_->mapped_bytes(), kHeight + kSlot);
  EXPECT_EQ(chunks_->GetCounts().times_grown, 1u);
  ExpectWhole();
}

TEST_F(IdleChunksTest, WhatIsNeededLastMovesFirst) {
  Start(nullptr, kHeight);
  EXPECT_TRUE(chunks_->EnsureBacked(kHeight, kSlot, /*now=*/2, kAllowed));
  Bytes lent = 0;
  for (const Arena::Range& hole : arena_->HolesIn(kSlot, kSlot)) lent += hole.bytes;
  EXPECT_EQ(lent, kSlot) << "slot 1 is due behind those of 2, 3 and 0";
}

TEST_F(IdleChunksTest, AFullDeviceIsAskedOnceAnIterationAndThenIdleChunksMove) {
  Start(nullptr, kHeight);
  ASSERT_TRUE(FillTo(3));
  EXPECT_FALSE(Above(kSlot, kAllowed));
  EXPECT_EQ(chunks_->GetCounts().times_not_mapped, 1u);
  faulty_->FailNothing();
  EXPECT_FALSE(Above(kSlot, kAllowed));
  EXPECT_EQ(faulty_->calls(), 0u) << "it would refuse again";
  chunks_->TryAgain();
  EXPECT_FALSE(Above(kSlot, kAllowed));
  EXPECT_GT(faulty_->calls(), 0u);
  Drop(1);
  EXPECT_TRUE(Above(kSlot, kAllowed));
  EXPECT_EQ(arena_->mapped_bytes(), kHeight);
  ExpectWhole();
}

TEST_F(IdleChunksTest, NobodyWaitsForLittleUnlessTheDeviceIsFull) {
  EverySecond();
  EXPECT_FALSE(Above(512, kForbidden));
  EXPECT_TRUE(Above(512, kAllowed));
  EXPECT_EQ(driver_->waits, 0);
  EXPECT_EQ(arena_->mapped_bytes(), kHeight + kPage);
  Start(nullptr, kHeight);
  EverySecond();
  EXPECT_TRUE(Above(512, kAllowed));
  EXPECT_EQ(driver_->waits, 1);
  EXPECT_EQ(arena_->mapped_bytes(), kHeight);
  ExpectWhole();
}

// A device that has more than is to stay free for others: eight slots, of which one is to stay.
class FreeCardTest : public IdleChunksTest {
 protected:
  void SetUp() override {
    keep_free_ = kSlot;
    expandable_ = 6 * kSlot;  // half as much again as lives
    Start(nullptr, 8 * kSlot);
  }
};

TEST_F(FreeCardTest, TheArenaGrowsAndNothingMovesOrWaits) {
  EverySecond();
  EXPECT_FALSE(Above(kLarge, kForbidden)) << "what is idle stays where it is";
  EXPECT_TRUE(Above(kLarge, kAllowed));
  EXPECT_EQ(arena_->mapped_bytes(), kHeight + kLarge);
  EXPECT_EQ(chunks_->GetCounts().times_moved, 0u);
  EXPECT_EQ(driver_->waits, 0);
  EXPECT_TRUE(chunks_->is_card_free());
  ExpectWhole();
}

TEST_F(FreeCardTest, ItGrowsBeforeItReusesUpToWhatPyTorchWouldHold) {
  EXPECT_TRUE(chunks_->MayGrow(2 * kSlot, kHeight));
  EXPECT_FALSE(chunks_->MayGrow(2 * kSlot + kPage, kHeight));
  EXPECT_TRUE(chunks_->MayGrow(4 * kSlot, 2 * kHeight)) << "more lives than was traced";
  EXPECT_FALSE(chunks_->MayGrow(5 * kSlot, 2 * kHeight)) << "then a twentieth, too";
  expandable_ = 0;
  Start(nullptr, 8 * kSlot);
  EXPECT_FALSE(chunks_->MayGrow(kSlot, kHeight)) << "a twentieth at least";
  EXPECT_TRUE(chunks_->MayGrow(kPage / 2, kHeight));
}

TEST_F(FreeCardTest, WhatIsToStayFreeMakesItFull) {
  EverySecond();
  EXPECT_TRUE(Above(3 * kSlot, kAllowed));
  EXPECT_EQ(arena_->mapped_bytes(), 7 * kSlot);
  EXPECT_TRUE(chunks_->is_card_free());
  EXPECT_TRUE(chunks_->EnsureBacked(7 * kSlot, kPage, 0, kAllowed)) << "it grows before it waits";
  EXPECT_FALSE(chunks_->is_card_free());
  EXPECT_FALSE(chunks_->MayGrow(512, 16 * kHeight));
  EXPECT_EQ(driver_->waits, 0);
  EXPECT_TRUE(chunks_->EnsureBacked(7 * kSlot + kPage, kSlot, 0, kAllowed)) << "no more is to be had";
  EXPECT_EQ(driver_->waits, 1);
  EXPECT_EQ(chunks_->GetCounts().times_moved, 1u);
  ExpectWhole();
}

// Another process takes what is left, and gives it back.
TEST_F(FreeCardTest, AFullCardIsFreeAgainWhereTwiceAsMuchIsLeft) {
  std::vector<PhysicalHandle> others = Take(4 * kSlot);
  EverySecond();
  EXPECT_TRUE(Above(kSlot, kAllowed)) << "by a move";
  EXPECT_EQ(arena_->mapped_bytes(), kHeight);
  GiveBack(&others, 2 * kSlot + kPage);
  chunks_->BeginIteration();
  EXPECT_TRUE(chunks_->EnsureBacked(5 * kSlot, kPage, 0, kAllowed));
  EXPECT_FALSE(chunks_->is_card_free()) << "less than two slots would be left";
  GiveBack(&others, 0);
  EXPECT_TRUE(chunks_->EnsureBacked(5 * kSlot + kPage, kPage, 0, kAllowed));
  EXPECT_FALSE(chunks_->is_card_free()) << "the device is asked once an iteration";
  chunks_->BeginIteration();
  EXPECT_TRUE(chunks_->EnsureBacked(5 * kSlot + 2 * kPage, kPage, 0, kAllowed));
  EXPECT_TRUE(chunks_->is_card_free());
  ExpectWhole();
}

// What the arena has grown by beyond its bound.
TEST_F(FreeCardTest, WhatIterationsLeaveIdleAboveTheBoundGoesBackAFewChunksAtATime) {
  InstantFence fence;
  keep_free_ = 0;
  Start(&fence, 16 * kSlot);
  EverySecond();
  ASSERT_TRUE(Above(6 * kSlot, kAllowed));
  const Bytes bound = 6 * kSlot;
  DropAll();
  for (std::size_t i = 0; i <= tuning::kIdleIterations; ++i) {
    EXPECT_EQ(arena_->mapped_bytes(), 10 * kSlot) << i;
    chunks_->BeginIteration();
  }
  const std::uint64_t moved = chunks_->GetCounts().times_moved;
  for (int i = 0; i < 100 && arena_->mapped_bytes() > bound; ++i) {
    const std::size_t before = arena_->Chunks().size();
    chunks_->BeginIteration();
    EXPECT_LE(before - arena_->Chunks().size(), tuning::kReleasedAtOnce);
  }
  EXPECT_EQ(arena_->mapped_bytes(), bound);
  EXPECT_EQ(chunks_->Spare(), 0u) << "it does not come again";
  EXPECT_EQ(chunks_->GetCounts().times_moved, moved);
  EXPECT_EQ(driver_->waits, 0);
  ExpectWhole();
}

// Kernels of another device read the blocks of slots 1 and 3 when these are freed.
TEST_F(IdleChunksTest, WhatAnotherDeviceMayStillUseNeitherMovesNorGoesBack) {
  const StreamHandle other = StreamOfDevice(1, 11);
  FakeFence fence;
  Start(&fence);
  ASSERT_TRUE(FillTo(3));
  for (const std::size_t slot : {1, 3}) {
    engine_->RecordStream(blocks_[slot], other);
    Drop(slot);
  }
  EXPECT_FALSE(Above(kSlot, kForbidden)) << "to wait for this device is not enough";
  EXPECT_EQ(chunks_->GiveBack(), 0u);
  EXPECT_EQ(arena_->mapped_bytes(), kHeight);
  fence.Finish(other);
  EXPECT_EQ(chunks_->GiveBack(), 2 * kSlot) << "it waits for the other device's stream";
  ExpectWhole();
}

TEST_F(IdleChunksTest, WhatTheDeviceIsKnownToBeDoneWithMovesWithoutAWait) {
  InstantFence fence;
  Start(&fence, kHeight);
  EverySecond();
  ASSERT_TRUE(Above(kSlot, kAllowed));
  EXPECT_EQ(driver_->waits, 1) << "before the first move marks record no events";
  chunks_->OnMark();
  ASSERT_TRUE(chunks_->EnsureBacked(kHeight + kSlot, kSlot, 0, kForbidden));
  EXPECT_EQ(driver_->waits, 1);
  Drop(0);  // after that event
  chunks_->TryAgain();
  EXPECT_TRUE(chunks_->EnsureBacked(kHeight + 2 * kSlot, 3 * kSlot, 0, kAllowed));
  EXPECT_EQ(driver_->waits, 2) << "for slot 0; the other two are idle above the plan";
  EXPECT_EQ(arena_->mapped_bytes(), kHeight);
  ExpectWhole();
}

// A wake copies into a block that was freed meanwhile, after the clock has recorded its event of that time.
TEST_F(IdleChunksTest, AWakesCopiesAreOverBeforeAnythingMoves) {
  InstantFence fence;
  Start(&fence, kHeight);
  EverySecond();
  ASSERT_TRUE(Above(kSlot, kAllowed));
  chunks_->OnMark();
  {
    const auto held = chunks_->Hold();
    chunks_->NoteCopies();
  }
  EXPECT_FALSE(chunks_->EnsureBacked(kHeight + kSlot, kSlot, 0, kForbidden));
  chunks_->OnMark();
  EXPECT_TRUE(chunks_->EnsureBacked(kHeight + kSlot, kSlot, 0, kForbidden));
  EXPECT_EQ(driver_->waits, 1) << "the first move's";
  ExpectWhole();
}

TEST_F(IdleChunksTest, WhileTheDeviceCannotBeWaitedForNothingMoves) {
  EverySecond();
  driver_->capturing = true;
  EXPECT_FALSE(Above(kLarge, kForbidden));
  EXPECT_TRUE(Above(kLarge, kAllowed));
  EXPECT_EQ(arena_->mapped_bytes(), kHeight + kLarge);
  DropAll();
  Iteration();
  EXPECT_TRUE(FillTo(3)) << "nothing stays withdrawn";
  ExpectWhole();
}

TEST_F(IdleChunksTest, WhatMovesAtMarksTakesNoBlocksBytes) {
  Start(nullptr, kHeight);
  chunks_->MoveAtMarks();
  for (int round = 0; round < 8; ++round) {
    Iteration();
    EXPECT_TRUE(FillTo(3));
    Drop(static_cast<std::size_t>(round) % kSlots);
    for (int mark = 0; mark < 4; ++mark) {
      chunks_->OnMark();
      ExpectWhole();
    }
    DropAll();
  }
  EXPECT_GT(chunks_->GetCounts().times_moved, 8u);
  EXPECT_EQ(arena_->mapped_bytes(), kHeight);
}

// Holds no more than it is told.
class Limit final : public ArenaListener {
 public:
  Limit(const Arena& arena, Bytes most) : arena_(arena), most_(most) {}
  void BeforeArenaChange() noexcept override { ++begun; }
  void AfterArenaChange() noexcept override { ++ended; }
  [[nodiscard]] bool MayHold(Bytes more) noexcept override { return arena_.mapped_bytes() + more <= most_; }
  int begun = 0;
  int ended = 0;

 private:
  const Arena& arena_;
  const Bytes most_;
};

TEST_F(IdleChunksTest, ALimitIsForWhatIsMappedAndNotForWhatMoves) {
  Limit limit(*arena_, kHeight);
  chunks_->SetListener(&limit);
  ASSERT_TRUE(FillTo(3));
  EXPECT_FALSE(Above(kSlot, kAllowed));
  EXPECT_EQ(limit.begun, 0) << "refused before anything changes";
  chunks_->TryAgain();
  Drop(3);
  EXPECT_TRUE(Above(kSlot, kAllowed));
  EXPECT_EQ(limit.begun, 1);
  EXPECT_EQ(limit.ended, 1);
  EXPECT_EQ(arena_->mapped_bytes(), kHeight);
  chunks_->SetListener(nullptr);
}

TEST_F(IdleChunksTest, OwnMemoryAmidBorrowedIsMappedWhenItIsNeededAndGoesBack) {
  borrow_ = 4 * kPage;
  Start();
  const Arena::Range own{arena_->borrow_begin() + kPage, 2 * kPage};
  const auto back = [&](Offset at, Bytes bytes) {
    return chunks_->EnsureBacked(own.offset + at, bytes, /*now=*/0, kAllowed);
  };
  const auto is_withdrawn = [&](Offset at, Bytes bytes) {
    const bool was = !engine_->WithdrawUnderBlocks(own.offset + at, bytes);
    if (!was) engine_->Restore(own.offset + at, bytes);
    return was;
  };
  ASSERT_TRUE(chunks_->WithdrawOwned(own));
  EXPECT_EQ(arena_->mapped_bytes(), kHeight);
  EXPECT_TRUE(is_withdrawn(0, kPage));
  EXPECT_TRUE(back(512, 512));
  EXPECT_EQ(arena_->mapped_bytes(), kHeight + kPage) << "the whole chunk, and no more";
  EXPECT_FALSE(is_withdrawn(0, kPage));
  EXPECT_TRUE(is_withdrawn(kPage, 512));

  Limit limit(*arena_, kHeight + kPage);
  chunks_->SetListener(&limit);
  EXPECT_FALSE(back(0, 2 * kPage));
  EXPECT_EQ(limit.begun, 0);
  EXPECT_FALSE(is_withdrawn(0, kPage));
  EXPECT_TRUE(is_withdrawn(kPage, kPage));
  chunks_->SetListener(nullptr);
  faulty_->FailCall(0, DriverCode::kFailed, 100);
  EXPECT_FALSE(back(0, 2 * kPage));
  faulty_->FailNothing();
  EXPECT_TRUE(back(0, 2 * kPage));
  EXPECT_EQ(arena_->mapped_bytes(), kHeight + 2 * kPage);

  EXPECT_EQ(chunks_->GiveBack(), kHeight + 2 * kPage);
  EXPECT_TRUE(is_withdrawn(0, kPage) && is_withdrawn(kPage, kPage));
  EXPECT_TRUE(back(kPage, kPage));
  ASSERT_TRUE(chunks_->WithdrawOwned(own)) << "again, of which a part is mapped";
  EXPECT_TRUE(is_withdrawn(0, kPage));
  EXPECT_FALSE(is_withdrawn(kPage, kPage));
}

TEST_F(IdleChunksTest, OnAFullCardWhatTheCycleHasNoUseForGoesBackBeforeOwnMemoryIsMapped) {
  borrow_ = 4 * kPage;
  for (const bool is_full : {false, true}) {
    keep_free_ = is_full ? 64 * kHeight : 0;
    Start();
    ASSERT_TRUE(FillTo(0));
    const Arena::Range own{arena_->borrow_begin(), kPage};
    ASSERT_TRUE(chunks_->WithdrawOwned(own));
    ASSERT_TRUE(chunks_->EnsureBacked(kHeight, kPage, /*now=*/0, kAllowed));
    ASSERT_EQ(arena_->mapped_bytes(), kHeight + kPage);
    EXPECT_TRUE(chunks_->EnsureBacked(own.offset, kPage, /*now=*/0, kAllowed));
    EXPECT_EQ(arena_->mapped_bytes(), kHeight + (is_full ? 1 : 2) * kPage);
    EXPECT_EQ(driver_->waits, is_full ? 1 : 0);
    EXPECT_TRUE(FillTo(3)) << "slots have their memory";
    DropAll();
    ExpectWhole();
  }
}

// Whichever call of the driver fails, alone or with all that follow, no block's bytes are lost and nothing is handed
// out that is not backed: all slots are written to afterwards.
TEST_F(IdleChunksTest, ADriverThatRefusesCallsCostsMemoryAndNeverData) {
  const std::vector<bool (*)(IdleChunks&)> changes = {
      [](IdleChunks& chunks) { return chunks.GiveBack() > 0; },
      [](IdleChunks& chunks) { return chunks.EnsureBacked(kHeight, kLarge, 0, kForbidden); },
      [](IdleChunks& chunks) { return chunks.EnsureBacked(kHeight, kHeight, 0, kAllowed); },
  };
  for (const std::uint64_t count : {std::uint64_t{1}, FaultyDriver::kNever}) {
    for (const auto change : changes) {
      bool failed = true;
      for (std::uint64_t call = 0; failed; ++call) {
        ASSERT_LT(call, 1000u);
        Start();
        EverySecond();
        faulty_->FailCall(call, DriverCode::kFailed, count);
        change(*chunks_);
        failed = faulty_->fired();
        faulty_->FailNothing();
        ExpectWhole(count);  // a handle that the driver does not release is nobody's
        chunks_->TryAgain();
        DropAll();
        Iteration();
        EXPECT_TRUE(FillTo(3)) << "call " << call;
        DropAll();
        EXPECT_EQ(engine_->CheckInvariants(), "");
      }
    }
  }
}

}  // namespace
}  // namespace stalloc
