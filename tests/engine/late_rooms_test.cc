// Where blocks of evaluations go, so that those which stay a while are in nobody's way.
#include <utility>

#include "allocator/engine/place/idle_gaps.h"
#include "tests/engine/dynamic_space_fixture.h"

namespace stalloc {
namespace late_rooms_test {

constexpr std::uint32_t kGranules = kMiB / kBlockAlignment;  // of a MiB

using Ranges = std::vector<std::pair<std::uint32_t, std::uint32_t>>;  // MiB

// Each room that there is.
std::vector<Ranges> RoomsOf(const DevicePlan& plan, std::uint32_t limit) {
  std::vector<Ranges> rooms;
  for (const std::vector<GranuleRange>& window : LateRooms(plan, limit * kGranules)) {
    Ranges& room = rooms.emplace_back();
    for (const GranuleRange& gap : window) room.emplace_back(gap.lo / kGranules, gap.hi / kGranules);
  }
  return rooms;
}

// Of four requests those at 4 and 12 come in the first half, the one at 12 first of all.
DevicePlan FourRequests() {
  return PlanOf({{4 * kMiB, 12 * kMiB, 1}, {4 * kMiB, 4 * kMiB, 1}, {4 * kMiB, 0, 1}, {4 * kMiB, 8 * kMiB, 1}});
}

TEST(LateRoomsTest, EachIsWhatAnEarlierPartOfTheIterationDoesNotUse) {
  EXPECT_EQ(RoomsOf(FourRequests(), 20), (std::vector<Ranges>{{{0, 4}, {8, 12}, {16, 20}}, {{0, 12}, {16, 20}}}));
  EXPECT_EQ(RoomsOf({}, 20), std::vector<Ranges>{});
  EXPECT_EQ(RoomsOf(PlanOf({{4 * kMiB, 0, 1}}), 20), std::vector<Ranges>{}) << "a request has no first half";
}

TEST(LateRoomsTest, BetweenAQuarterAndAHalfThereIsOneMore) {
  std::vector<Expected> requests;
  for (Offset at = 0; at < 8; ++at) requests.push_back({4 * kMiB, at * 4 * kMiB, 1});
  const std::vector<Ranges> rooms = RoomsOf(PlanOf(requests), 40);
  EXPECT_EQ(rooms, (std::vector<Ranges>{{{16, 40}}, {{12, 40}}, {{8, 40}}, {{4, 40}}}));
}

TEST(LateRoomsTest, AnyIterationOfTheCycleMayBeTheNext) {
  DevicePlan plan = PlanOf({{4 * kMiB, 0, 1}, {4 * kMiB, 0, 1}});
  Script other = plan.cycle.front();
  for (Entry& entry : other.entries) entry.slot = 2;
  plan.slots.push_back({8 * kMiB, 4 * kMiB});
  plan.cycle.push_back(other);
  EXPECT_EQ(RoomsOf(plan, 20), (std::vector<Ranges>{{{4, 8}, {12, 20}}}));
}

TEST(LateRoomsTest, PlacesOfWhatStaysForGoodAreNone) {
  DevicePlan plan = FourRequests();
  const auto stays = [&](Offset offset) {
    Entry entry;
    entry.entry_class = EntryClass::kPersistent;
    entry.slot = static_cast<std::uint32_t>(plan.slots.size());
    plan.slots.push_back({offset, 2 * kMiB});
    return entry;
  };
  plan.prologue.emplace_back().entries.push_back(stays(0));
  plan.kept.entries.push_back(stays(8 * kMiB));
  EXPECT_EQ(RoomsOf(plan, 20).front(), (Ranges{{2, 4}, {10, 12}, {16, 20}}));
}

using FenceTest = DynamicSpaceTest;

TEST_F(FenceTest, ABlockThatAnEvaluationLeavesIsInNobodysWayAtTheIterationsBeginning) {
  Start(FourRequests());
  engine_->OnMark(Fence(MarkEdge::kBegin));
  const std::int64_t left = Place(2 * kMiB);
  const std::int64_t gone = Place(2 * kMiB);
  EXPECT_EQ(left, 0);
  EXPECT_EQ(gone, 2);
  Free(gone);
  engine_->OnMark(Fence(MarkEdge::kEnd));
  engine_->OnMark(Iteration());
  EXPECT_EQ(Place(4 * kMiB), 12);
  EXPECT_EQ(Place(4 * kMiB), 4);
  Free(left);
  EXPECT_EQ(Place(4 * kMiB), 0);
  EXPECT_EQ(Place(4 * kMiB), 8);
  EXPECT_EQ(engine_->Stats().planned_hits, 4u);
}

TEST_F(FenceTest, WithoutSuchRoomItTakesTheHighest) {
  Start(PlanOf({{4 * kMiB, 0, 1}, {4 * kMiB, 0, 1}}));
  engine_->OnMark(Fence(MarkEdge::kBegin));
  EXPECT_EQ(Place(2 * kMiB), 2);
}

}  // namespace late_rooms_test
}  // namespace stalloc
