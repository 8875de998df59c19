// Nothing is placed where no memory is, nor by an engine that has stopped serving, whatever happens while its lock is
// open.
#include <gtest/gtest.h>

#include <functional>
#include <utility>

#include "tests/engine/dynamic_space_fixture.h"

namespace stalloc {
namespace placement_test {

// Calls back in the middle of a request, as another thread would, and grants nothing.
class Interruption final : public ArenaBacking {
 public:
  Interruption(PlanEngine& engine, std::function<void()> action) : action_(std::move(action)) {
    engine.SetBacking(this);
  }
  bool EnsureBacked(Offset /*offset*/, Bytes /*bytes*/, std::uint64_t /*now*/, Growth /*growth*/) noexcept override {
    ++asked_;
    action_();
    return false;
  }
  [[nodiscard]] int asked() const { return asked_; }

 private:
  const std::function<void()> action_;
  int asked_ = 0;
};

class PlacementTest : public DynamicSpaceTest {};

// The block's rest ends inside what is withdrawn, and its stream's work is not done.
TEST_F(PlacementTest, WhatWasFreedAcrossTheEndOfWithdrawnMemoryIsNoRoomBehindIt) {
  FakeFence fence;
  Start(PlanOf({{.bytes = 8 * kMiB, .offset = 0}}), &fence, /*most=*/8 * kMiB);
  ASSERT_EQ(Place(kMiB, 7), 0);
  ASSERT_EQ(Place(2 * kMiB, 7), 1);
  Free(1);
  ASSERT_TRUE(engine_->Withdraw(2 * kMiB, 6 * kMiB));
  EXPECT_EQ(Place(2 * kMiB, 5), -1);
}

TEST_F(PlacementTest, ARequestThatIsUnderWayWhenTheEngineStopsServingIsNotPlaced) {
  Start(PlanOf({{.bytes = 2 * kMiB, .offset = 0}, {.bytes = 2 * kMiB, .offset = 2 * kMiB}}));
  ASSERT_EQ(Place(2 * kMiB), 0);
  Interruption other(*engine_, [this] {
    Free(0);
    engine_->Deactivate();
  });
  EXPECT_EQ(Place(3 * kMiB), -1) << "nor in the slots' way, where there is room by now";
  EXPECT_EQ(other.asked(), 1) << "nobody is asked for memory any more";
}

// A request for a slot asks for its memory; meanwhile another part of the slot goes.
TEST_F(PlacementTest, ASlotIsServedOnlyWhereAllOfItIsBackWhenTheLockIsHeldAgain) {
  Start(PlanOf({{.bytes = 4 * kMiB, .offset = 0}}));
  ASSERT_TRUE(engine_->Withdraw(0, 2 * kMiB));
  Interruption other(*engine_, [this] {
    engine_->Restore(0, 2 * kMiB);
    (void)engine_->Withdraw(2 * kMiB, 2 * kMiB);
  });
  EXPECT_EQ(Place(4 * kMiB), -1);
  EXPECT_GT(other.asked(), 0);
}

// What was withdrawn is not mapped again for it, and nothing is placed until what ends has gone.
TEST_F(PlacementTest, APlanThatWasGivenUpServesWhatItLeavesOverOnceItMay) {
  Start(PlanOf({{.bytes = 2 * kMiB, .offset = 0}, {.bytes = 6 * kMiB, .offset = 2 * kMiB}}));
  engine_->ServeLeftOver();
  ASSERT_EQ(Place(2 * kMiB), 0) << "while the plan serves it goes on";
  engine_->DropPlan();
  EXPECT_EQ(Place(6 * kMiB), -1);
  EXPECT_EQ(engine_->AllocateUnexpected(kMiB, 0, MissReason::kParallel).pointer, nullptr);
  ASSERT_TRUE(engine_->Withdraw(4 * kMiB, 4 * kMiB));
  engine_->ServeLeftOver();
  Interruption other(*engine_, [] {});
  EXPECT_EQ(Place(6 * kMiB), -1);
  EXPECT_EQ(Place(512), 2) << "the smallest, too";
  EXPECT_EQ(Place(kMiB), 2) << "behind it";
  EXPECT_EQ(Place(kMiB), -1);
  EXPECT_EQ(other.asked(), 0);
  Free(0);
  EXPECT_EQ(Place(2 * kMiB), 0);
  EXPECT_EQ(engine_->Stats().planned_hits, 1u);
  EXPECT_TRUE(engine_->Stats().active);
}

TEST_F(PlacementTest, ARequestThatIsUnderWayWhenThePlanIsGivenUpIsNotPlaced) {
  Start(PlanOf({{.bytes = 2 * kMiB, .offset = 0}, {.bytes = 2 * kMiB, .offset = 2 * kMiB}}));
  ASSERT_EQ(Place(2 * kMiB), 0);
  Interruption other(*engine_, [this] {
    Free(0);
    engine_->DropPlan();
  });
  EXPECT_EQ(Place(3 * kMiB), -1);
  EXPECT_EQ(other.asked(), 1);
}

// Streams wait for each other there as anywhere else.
TEST_F(PlacementTest, WhatIsLeftOverPassesBetweenStreamsInOrder) {
  FakeFence fence;
  Start(PlanOf({{.bytes = 2 * kMiB, .offset = 0}}), &fence, /*most=*/2 * kMiB);
  engine_->DropPlan();
  engine_->ServeLeftOver();
  ASSERT_EQ(Place(2 * kMiB, 7), 0);
  Free(0);
  const std::uint64_t waits = engine_->Stats().stream_waits;
  EXPECT_EQ(Place(2 * kMiB, 5), 0);
  EXPECT_EQ(engine_->Stats().stream_waits, waits + 1);
}

}  // namespace placement_test
}  // namespace stalloc
