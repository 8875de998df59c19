// What the engine serves beside the slots of a plan.
#include "allocator/engine/place/dynamic_space.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tests/engine/dynamic_space_fixture.h"

namespace stalloc {
namespace dynamic_space_test {

TEST_F(DynamicSpaceTest, ABlockGoesWhereNoSlotIsUsedUntilItsFree) {
  // Free when it is asked for: [4, 12). A slot takes [8, 12) before it goes.
  Start(PlanOf({{4 * kMiB, 0, 3}, {2 * kMiB, kNoPlace, 2}, {4 * kMiB, 8 * kMiB, 1}}));
  EXPECT_EQ(Place(4 * kMiB), 0);
  EXPECT_EQ(Place(3 * kMiB), 4);
  EXPECT_EQ(Place(4 * kMiB), 8);
  const EngineStats stats = engine_->Stats();
  EXPECT_EQ(stats.planned_hits, 2u);
  EXPECT_EQ(stats.dynamic_hits, 1u);
  EXPECT_EQ(growth_->asked(), 0);
}

TEST_F(DynamicSpaceTest, TheTightestRoomIsTaken) {
  std::vector<Expected> requests;
  for (int i = 0; i < 6; ++i) requests.push_back({2 * kMiB, kNoPlace, 1});
  requests.push_back({32 * kMiB, 0, 1});
  Start(PlanOf(requests));
  EXPECT_EQ(Place(4 * kMiB), 0);
  EXPECT_EQ(Place(2 * kMiB), 4);
  EXPECT_EQ(Place(3 * kMiB), 6);
  EXPECT_EQ(Place(kMiB), 9);
  Free(0);
  Free(6);
  EXPECT_EQ(Place(3 * kMiB), 6);  // not [0, 4)
  EXPECT_EQ(Place(3 * kMiB), 1);  // not [10, 32); beside the block at 4, so that what is left is one room
}

TEST_F(DynamicSpaceTest, ALateBlockOfASlotIsNoRoom) {
  Start(PlanOf({{4 * kMiB, 0, 1}, {4 * kMiB, 4 * kMiB, 1}, {2 * kMiB, kNoPlace, 1}}));
  EXPECT_EQ(Place(4 * kMiB), 0);
  EXPECT_EQ(Place(4 * kMiB), 4);
  Free(4);
  EXPECT_EQ(Place(2 * kMiB), 4);  // the plan has nothing in [0, 8) now, but the first block is there
}

TEST_F(DynamicSpaceTest, TheArenaGrowsWhereNothingIsLeftAndKeepsWhatItHas) {
  Start(PlanOf({{4 * kMiB, 0, 2}, {2 * kMiB, kNoPlace, 1}}));
  EXPECT_EQ(Place(4 * kMiB), 0);
  EXPECT_EQ(Place(3 * kMiB), 4);
  EXPECT_EQ(growth_->mapped(), 8 * kMiB);
  Free(0);
  Free(4);
  engine_->OnMark(Iteration());
  EXPECT_EQ(Place(4 * kMiB), 0);
  EXPECT_EQ(Place(3 * kMiB), 4);
  EXPECT_EQ(growth_->asked(), 1);
}

TEST_F(DynamicSpaceTest, WhatCannotBeMappedIsUpstreams) {
  Start(PlanOf({{4 * kMiB, 0, 2}, {2 * kMiB, kNoPlace, 1}}), nullptr, /*most=*/6 * kMiB);
  EXPECT_EQ(Place(4 * kMiB), 0);
  EXPECT_EQ(Place(3 * kMiB), -1);
  EXPECT_EQ(engine_->Stats().misses[static_cast<std::size_t>(MissReason::kUnplanned)], 1u);
  EXPECT_EQ(growth_->asked(), 2);  // for where the plan wants it, and for anywhere
}

TEST_F(DynamicSpaceTest, WhereTheArenaCannotGrowASlotsIdlePlaceIsBetterThanNone) {
  Start(PlanOf({{4 * kMiB, 0, 2}, {2 * kMiB, 4 * kMiB, 3}, {kMiB, kNoPlace, 1}}), nullptr, /*most=*/6 * kMiB);
  EXPECT_EQ(Place(4 * kMiB), 0);
  EXPECT_EQ(Place(3 * kMiB / 2), 4);  // unexpected: above all slots, if it could
  EXPECT_EQ(Place(2 * kMiB), -1);     // the slot's owner pays, not the program
}

TEST_F(DynamicSpaceTest, SmallBlocksAndThoseBeforeTheLoopAreUpstreams) {
  Start(PlanOf({{4 * kMiB, 0, 1}, {2 * kMiB, kNoPlace, 1}}));
  EXPECT_EQ(Place(4 * kMiB), 0);
  EXPECT_EQ(Place(kMiB / 2), -1);
  PlanEngine idle(PlanOf({{4 * kMiB, 0, 1}}), kBase, nullptr, DynamicSpaceOptions{kLimit, 4 * kMiB, kMiB});
  EXPECT_EQ(idle.Allocate(2 * kMiB, 0).pointer, nullptr);
}

TEST_F(DynamicSpaceTest, ALateBlockCostsItsSlotAMissAndNobodyElse) {
  // The dynamic block is expected to be gone when the slot at 4 MiB is taken.
  Start(PlanOf({{4 * kMiB, 0, 3}, {4 * kMiB, kNoPlace, 1}, {4 * kMiB, 4 * kMiB, 1}, {3 * kMiB, 0, 1}}));
  EXPECT_EQ(Place(4 * kMiB), 0);
  EXPECT_EQ(Place(4 * kMiB), 4);
  EXPECT_EQ(Place(4 * kMiB), 8);  // its slot is taken: the arena grows
  Free(0);
  EXPECT_EQ(Place(3 * kMiB), 0);
  const EngineStats stats = engine_->Stats();
  EXPECT_EQ(stats.planned_hits, 2u);
  EXPECT_EQ(stats.dynamic_hits, 2u);
}

TEST_F(DynamicSpaceTest, ALargerBlockThanItsSlotLiesInOthersWayBeforeTheArenaGrows) {
  DevicePlan plan = PlanOf({{4 * kMiB, 0, 1}, {4 * kMiB, 4 * kMiB, 1}});
  plan.cycle[0].entries[0].entry_class = EntryClass::kDynamic;
  Start(plan);
  EXPECT_EQ(Place(3 * kMiB), 0);  // fits its slot
  engine_->OnMark(Iteration());
  Free(0);
  EXPECT_EQ(Place(6 * kMiB), 0);  // the next slot's owner finds another place
  EXPECT_EQ(growth_->asked(), 0);
  EXPECT_EQ(Place(4 * kMiB), 8);
  EXPECT_EQ(growth_->mapped(), 12 * kMiB);
}

TEST_F(DynamicSpaceTest, FencedAndUnexpectedBlocksAreServedFromWhatIsIdle) {
  Start(PlanOf({{4 * kMiB, 0, 1}, {12 * kMiB, 4 * kMiB, 1}}));
  engine_->OnMark(Fence(MarkEdge::kBegin));
  EXPECT_EQ(Place(4 * kMiB), 4);
  EXPECT_EQ(Place(4 * kMiB), 8);
  Free(4);
  Free(8);
  engine_->OnMark(Fence(MarkEdge::kEnd));
  EXPECT_EQ(Place(4 * kMiB), 0);
  const PlanEngine::Allocation parallel = engine_->AllocateUnexpected(4 * kMiB, 0, MissReason::kParallel);
  EXPECT_NE(parallel.pointer, nullptr);
  EXPECT_EQ(parallel.reason, MissReason::kParallel);
  engine_->Deactivate();
  EXPECT_EQ(engine_->AllocateUnexpected(4 * kMiB, 0, MissReason::kParallel).reason, MissReason::kInactive);
}

// 16 entries of 2 MiB and one that takes all of the arena.
DevicePlan MostlyIdle() {
  std::vector<Expected> requests(16, {2 * kMiB, 0, 1});
  requests.push_back({64 * kMiB, 0, 1});
  return PlanOf(requests);
}

TEST_F(DynamicSpaceTest, WhatThePlanDoesNotKnowIsServedFromWhatIsIdleBeforeTheArenaGrows) {
  Start(MostlyIdle());
  for (int i = 0; i < 21; ++i) EXPECT_EQ(Place(3 * kMiB), 3 * i);
  EXPECT_EQ(Place(3 * kMiB), 64);  // above all slots
}

TEST_F(DynamicSpaceTest, WithdrawnMemoryIsMappedAgainOnlyWhenNothingElseIsLeft) {
  Start(PlanOf({{8 * kMiB, 0, 1}, {2 * kMiB, kNoPlace, 1}}));
  ASSERT_TRUE(engine_->Withdraw(4 * kMiB, 4 * kMiB));
  engine_->OnMark(Fence(MarkEdge::kBegin));
  EXPECT_EQ(Place(2 * kMiB), 2);
  EXPECT_EQ(Place(2 * kMiB), 0);
  EXPECT_EQ(growth_->asked(), 0);
  engine_->Restore(4 * kMiB, 4 * kMiB);
  EXPECT_EQ(Place(2 * kMiB), 6);
}

// Maps again what was withdrawn, as long as there is something to spare.
class Refill final : public ArenaBacking {
 public:
  explicit Refill(PlanEngine& engine) : engine_(engine) { engine.SetBacking(this); }
  bool EnsureBacked(Offset offset, Bytes bytes, std::uint64_t /*now*/, Growth growth) noexcept override {
    EXPECT_EQ(growth, Growth::kForbidden);
    ++asked;
    if (full) return false;
    engine_.Restore(offset, bytes);
    return true;
  }
  [[nodiscard]] Bytes Spare() const noexcept override { return spare; }

  Bytes spare = 0;
  bool full = false;
  int asked = 0;

 private:
  PlanEngine& engine_;
};

// The tightest room for the second request is [0, 2), which was withdrawn; [10, 16) is mapped.
TEST_F(DynamicSpaceTest, WhatCanBeMappedWithoutHoldingMoreThanBeforeIsRoomLikeAnyOther) {
  const DevicePlan plan = PlanOf({{6 * kMiB, 10 * kMiB, 1}, {2 * kMiB, kNoPlace, 2}, {8 * kMiB, 2 * kMiB, 1}});
  struct Case {
    Bytes spare;
    bool full;
    std::int64_t place;
    int asked;
  };
  for (const Case& each : {Case{kMiB, false, 10, 0}, Case{2 * kMiB, false, 0, 1}, Case{2 * kMiB, true, 10, 1}}) {
    Start(plan);
    Refill refill(*engine_);
    refill.spare = each.spare;
    refill.full = each.full;
    ASSERT_TRUE(engine_->Withdraw(0, 2 * kMiB));
    ASSERT_EQ(Place(6 * kMiB), 10);
    Free(10);
    EXPECT_EQ(Place(2 * kMiB), each.place);
    EXPECT_EQ(refill.asked, each.asked);
  }
}

TEST_F(DynamicSpaceTest, WhatIsFencedTakesMappedRoomFirstWhateverThereIsToSpare) {
  Start(PlanOf({{8 * kMiB, 0, 1}, {2 * kMiB, kNoPlace, 1}}));
  Refill refill(*engine_);
  refill.spare = 4 * kMiB;
  ASSERT_TRUE(engine_->Withdraw(4 * kMiB, 4 * kMiB));
  engine_->OnMark(Fence(MarkEdge::kBegin));
  EXPECT_EQ(Place(2 * kMiB), 2);
  EXPECT_EQ(refill.asked, 0);
}

// Lent slots ----------------------------------------------------------------------------------------------------------

// Gradients of one size live until the optimizer; the first of them has no request this time.
TEST_F(DynamicSpaceTest, ASlotThatItsOwnerDidNotTakeServesAnotherOfItsSize) {
  std::vector<Expected> requests = {{2 * kMiB, 0, 40}, {2 * kMiB, 2 * kMiB, 40}, {2 * kMiB, 4 * kMiB, 40}};
  for (int i = 0; i < 40; ++i) requests.push_back({kMiB + static_cast<Bytes>(i) * kBlockAlignment, 6 * kMiB, 1});
  Start(PlanOf(requests));
  EXPECT_EQ(Place(2 * kMiB), 0);
  EXPECT_EQ(Place(2 * kMiB), 2);
  Free(0);  // early
  EXPECT_EQ(Place(2 * kMiB), 4);
  EXPECT_EQ(Place(2 * kMiB), 0);  // one more than planned
  EXPECT_EQ(growth_->asked(), 0);
  const EngineStats stats = engine_->Stats();
  EXPECT_EQ(stats.planned_hits, 3u);
  EXPECT_EQ(stats.dynamic_hits, 1u);
}

TEST_F(DynamicSpaceTest, ASlotIsNotLentBeyondItsTime) {
  Start(PlanOf({{2 * kMiB, 0, 1}, {2 * kMiB, 4 * kMiB, 50}, {3 * kMiB, 6 * kMiB, 1}}));
  EXPECT_EQ(Place(2 * kMiB), 0);
  EXPECT_EQ(Place(2 * kMiB), 4);
  Free(0);
  EXPECT_EQ(Place(2 * kMiB), 6);  // above all slots: nobody knows how long it stays
}

// What no entry explains is expected to stay as long as those of its size that come: a slot that is free for long
// enough for what is due now would be missed.
TEST_F(DynamicSpaceTest, ASlotIsNotLentToWhatStaysAsLongAsThoseOfItsSize) {
  std::vector<Expected> requests = {{2 * kMiB, 0, 20}};
  for (Bytes i = 0; i < 100; ++i) requests.push_back({kMiB + i * kBlockAlignment, 6 * kMiB, 1});
  requests.push_back({2 * kMiB, 4 * kMiB, 60});
  Start(PlanOf(requests));
  EXPECT_EQ(Place(2 * kMiB), 0);
  Free(0);
  for (Bytes i = 0; i < 5; ++i) {
    EXPECT_EQ(Place(kMiB + i * kBlockAlignment), 6);
    Free(6);
  }
  EXPECT_NE(Place(2 * kMiB), 0);
}

// Of four like blocks the first is freed late: the second one's owner takes the last slot of all, and is alone to be
// out of place until that one's owner comes.
TEST_F(DynamicSpaceTest, InTheWayOfItsLikeABlockTakesTheSlotThatIsNeededLast) {
  Start(PlanOf({{4 * kMiB, 0, 1}, {4 * kMiB, 0, 9}, {4 * kMiB, 4 * kMiB, 9}, {4 * kMiB, 8 * kMiB, 9}}));
  EXPECT_EQ(Place(4 * kMiB), 0);
  EXPECT_EQ(Place(4 * kMiB), 8);
  EXPECT_EQ(Place(4 * kMiB), 4);
  Free(0);
  EXPECT_EQ(Place(4 * kMiB), 0);
  EXPECT_EQ(growth_->asked(), 0);
  EXPECT_EQ(engine_->Stats().planned_hits, 2u);
}

// Rules that are left out ---------------------------------------------------------------------------------------------

TEST_F(DynamicSpaceTest, WithoutLentSlotsOneMoreOfASizeIsUnknown) {
  std::vector<Expected> requests = {{2 * kMiB, 0, 40}, {2 * kMiB, 2 * kMiB, 40}, {2 * kMiB, 4 * kMiB, 40}};
  for (int i = 0; i < 40; ++i) requests.push_back({kMiB + static_cast<Bytes>(i) * kBlockAlignment, 6 * kMiB, 1});
  for (const bool left_out : {false, true}) {
    Rules rules;
    rules.LeaveOut(Rule::kInTheWay);
    if (left_out) rules.LeaveOut(Rule::kLentSlots);
    Start(PlanOf(requests), nullptr, kLimit, rules);
    EXPECT_EQ(Place(2 * kMiB), 0);
    EXPECT_EQ(Place(2 * kMiB), 2);
    Free(0);
    EXPECT_EQ(Place(2 * kMiB), 4);
    EXPECT_EQ(Place(2 * kMiB), left_out ? 7 : 0);
  }
}

TEST_F(DynamicSpaceTest, WithoutTheWayOfSlotsTheArenaGrows) {
  for (const bool left_out : {false, true}) {
    Rules rules;
    if (left_out) rules.LeaveOut(Rule::kInTheWay);
    Start(PlanOf({{2 * kMiB, kNoPlace, 2}, {4 * kMiB, 0, 1}}), nullptr, kLimit, rules);
    EXPECT_EQ(Place(2 * kMiB), left_out ? 4 : 0);
  }
}

// Streams -------------------------------------------------------------------------------------------------------------

// Every event is done when it is waited for.
class CountingFence : public StreamFence {
 public:
  Event Record(StreamHandle) noexcept override { return ++records_; }
  bool Wait(StreamHandle, Event) noexcept override {
    ++waits_;
    return !fails_;
  }
  bool Done(Event) noexcept override { return false; }
  void Recycle(Event) noexcept override {}
  void Fail() { fails_ = true; }
  [[nodiscard]] int waits() const { return waits_; }

 private:
  Event records_ = 0;
  int waits_ = 0;
  bool fails_ = false;
};

// They lie in the way of slots, all of which come while they live.
TEST_F(DynamicSpaceTest, BlocksThatComeAndGoDoNotWanderUpwards) {
  constexpr int kSlots = 64;
  constexpr int kTimes = 8;
  constexpr Bytes kSlot = 8 * kMiB;
  std::vector<Expected> requests = {{kSlots * kSlot, 0, 1}};
  for (int i = 0; i < kTimes; ++i) {
    requests.push_back({2 * kMiB, kNoPlace, 2 * kSlots});
    requests.push_back({24 * kMiB, kNoPlace, 2 * kSlots});
  }
  for (int i = 0; i < 2 * kSlots; ++i) requests.push_back({kSlot, static_cast<Offset>(i % kSlots) * kSlot, 1});
  Start(PlanOf(requests));
  Free(Place(kSlots * kSlot));
  for (int i = 0; i < kTimes; ++i) {
    const std::int64_t small = Place(2 * kMiB);
    const std::int64_t large = Place(24 * kMiB);
    EXPECT_LE(std::max(small, large), 26);
    Free(small);
    Free(large);
  }
  EXPECT_EQ(growth_->asked(), 0);
}

TEST_F(DynamicSpaceTest, ABlockOfAnotherStreamWaitsForTheMainStreamWhoseFreesLeaveNoTrace) {
  CountingFence fence;
  Start(PlanOf({{4 * kMiB, 0, 1}, {2 * kMiB, kNoPlace, 1}}), &fence);
  EXPECT_EQ(Place(4 * kMiB, 1), 0);
  Free(0);
  EXPECT_EQ(Place(4 * kMiB, 2), 0);  // the same bytes, from stream 2
  EXPECT_EQ(fence.waits(), 1);
  Free(0);
  engine_->OnMark(Iteration());
  EXPECT_EQ(Place(4 * kMiB, 1), 0);  // and back
  EXPECT_EQ(fence.waits(), 2);
}

TEST_F(DynamicSpaceTest, RoomThatNobodyHasToWaitForIsPreferred) {
  CountingFence fence;
  Start(PlanOf({{8 * kMiB, 0, 1, 0}, {2 * kMiB, kNoPlace, 1, 0}, {2 * kMiB, 8 * kMiB, 1, 1}}), &fence);
  EXPECT_EQ(Place(8 * kMiB, 1), 0);
  Free(0);
  engine_->OnMark(Fence(MarkEdge::kBegin));
  EXPECT_EQ(Place(4 * kMiB, 2), 6);  // behind stream 1, which had [0, 8)
  EXPECT_EQ(fence.waits(), 1);
  Free(6);
  EXPECT_EQ(Place(4 * kMiB, 1), 2);  // [6, 10) was stream 2's: below it, with no wait
  EXPECT_EQ(fence.waits(), 1);
  EXPECT_EQ(Place(4 * kMiB, 1), 6);  // better to wait than to grow
  EXPECT_EQ(fence.waits(), 2);
  EXPECT_EQ(growth_->asked(), 0);
}

TEST_F(DynamicSpaceTest, OfSeveralStreamsABlockWaitsForNobodyWhoNeverHadItsBytes) {
  CountingFence fence;
  Start(PlanOf({{8 * kMiB, 0, 1, 0}, {2 * kMiB, kNoPlace, 1, 0}, {2 * kMiB, 8 * kMiB, 1, 1}}), &fence);
  EXPECT_EQ(Place(8 * kMiB, 1), 0);
  EXPECT_GE(Place(4 * kMiB, 2), 8);
  EXPECT_EQ(fence.waits(), 0) << "whatever the main stream was given meanwhile";
}

TEST_F(DynamicSpaceTest, WhereTheWaitFailsTheBlockIsNotServed) {
  CountingFence fence;
  Start(PlanOf({{4 * kMiB, 0, 1}, {2 * kMiB, kNoPlace, 1}}), &fence);
  EXPECT_EQ(Place(4 * kMiB, 1), 0);
  Free(0);
  fence.Fail();
  EXPECT_EQ(Place(4 * kMiB, 2), -1);
  EXPECT_EQ(engine_->Stats().dynamic_hits, 0u);
}

}  // namespace dynamic_space_test
}  // namespace stalloc
