// What evaluations and checkpoints leave behind for good.
#include "tests/engine/dynamic_space_fixture.h"

namespace stalloc {
namespace kept_places_test {

class KeptPlacesTest : public DynamicSpaceTest {
 protected:
  // One slot at [0, 4) for everything; a block of `kept` bytes stays at [4, 8).
  static DevicePlan PlanThatKeeps(Bytes kept) {
    DevicePlan plan = PlanOf({{4 * kMiB, 0, 1}, {2 * kMiB, 0, 1}});
    Entry entry;
    entry.bytes = entry.min_bytes = entry.max_bytes = kept;
    entry.entry_class = EntryClass::kPersistent;
    entry.slot = static_cast<std::uint32_t>(plan.slots.size());
    plan.slots.push_back({4 * kMiB, kept});
    plan.kept.entries.push_back(entry);
    plan.arena_bytes = 8 * kMiB;
    return plan;
  }
  void Evaluate(MarkEdge edge) { engine_->OnMark(Fence(edge)); }
};

TEST_F(KeptPlacesTest, ABlockThatStaysIsInNobodysWay) {
  Start(PlanThatKeeps(4 * kMiB));
  Evaluate(MarkEdge::kBegin);
  EXPECT_EQ(Place(2 * kMiB), 6);  // nothing is known of it: the highest room there is
  Free(6);
  EXPECT_EQ(Place(4 * kMiB), 4);
  Evaluate(MarkEdge::kEnd);
  EXPECT_EQ(Place(4 * kMiB), 0);
  EXPECT_EQ(engine_->Stats().planned_hits, 1u);
  EXPECT_EQ(growth_->asked(), 0);
}

TEST_F(KeptPlacesTest, APlaceIsTakenOnceAndFreeAgainWhenItsBlockGoes) {
  Start(PlanThatKeeps(4 * kMiB));
  Evaluate(MarkEdge::kBegin);
  EXPECT_EQ(Place(4 * kMiB), 4);
  EXPECT_EQ(Place(4 * kMiB), 0);
  Free(4);
  EXPECT_EQ(Place(4 * kMiB), 4);
}

TEST_F(KeptPlacesTest, OutsideOfFencesItIsRoomOnlyBeforeTheArenaGrows) {
  DevicePlan plan = PlanThatKeeps(4 * kMiB);
  plan.cycle[0].entries.push_back(plan.cycle[0].entries.back());
  plan.cycle[0].entries.back().slot = kNoSlot;
  plan.cycle[0].entries.back().entry_class = EntryClass::kDynamic;
  Start(plan);
  EXPECT_EQ(Place(4 * kMiB), 0);
  Free(0);
  EXPECT_EQ(Place(2 * kMiB), 0);
  EXPECT_EQ(Place(2 * kMiB), 2);  // the slots are idle, and [4, 8) is not
  EXPECT_EQ(Place(4 * kMiB), 4);
  EXPECT_EQ(growth_->asked(), 0);
  EXPECT_EQ(Place(4 * kMiB), 8);
}

}  // namespace kept_places_test
}  // namespace stalloc
