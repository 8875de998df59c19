// Blocks that find their slot still taken: they lie in the way of others before the arena grows (dynamic_space.h).
#include "tests/engine/dynamic_space_fixture.h"

namespace stalloc {
namespace displaced_blocks_test {

using DisplacedBlocksTest = DynamicSpaceTest;
using Growth = ArenaBacking::Growth;

TEST_F(DisplacedBlocksTest, BeforeTheArenaGrowsTheTightestRoomIsTakenInOthersWay) {
  Start(PlanOf({{kMiB, 12 * kMiB, 16},
                {4 * kMiB, 0, 1},
                {4 * kMiB, 0, 16},
                {8 * kMiB, 4 * kMiB, 16},
                {5 * kMiB, 13 * kMiB, 16}}));
  EXPECT_EQ(Place(kMiB), 12);
  EXPECT_EQ(Place(4 * kMiB), 0);
  EXPECT_EQ(Place(4 * kMiB), 13);  // not [4, 12)
  EXPECT_EQ(growth_->asked(), 0);
}

TEST_F(DisplacedBlocksTest, WhereSizesVaryIdlePartsMoveRatherThanThatTheArenaGrows) {
  std::vector<Expected> requests = {{4 * kMiB, 0, 1}, {4 * kMiB, 0, 16}, {8 * kMiB, 4 * kMiB, 16}};
  requests.push_back({2 * kMiB, kNoPlace, 1});
  Start(PlanOf(requests));
  EXPECT_EQ(Place(4 * kMiB), 0);
  EXPECT_EQ(Place(4 * kMiB), 4);  // in the way of [4, 12)
  EXPECT_EQ(growth_->asked(), 0);
  EXPECT_EQ(Place(8 * kMiB), 12);
  EXPECT_EQ(growth_->growth(), Growth::kAllowed);
}

TEST_F(DisplacedBlocksTest, WhatStaysForGoodGoesAboveAllSlots) {
  constexpr std::uint64_t kForGood = 0;
  Start(PlanOf({{kMiB, 12 * kMiB, 16},
                {4 * kMiB, 0, 1},
                {4 * kMiB, 0, kForGood},
                {8 * kMiB, 4 * kMiB, 16},
                {5 * kMiB, 13 * kMiB, 16}}));
  EXPECT_EQ(Place(kMiB), 12);
  EXPECT_EQ(Place(4 * kMiB), 0);
  EXPECT_EQ(Place(4 * kMiB), 18);  // neither [4, 12) nor [13, 18)
  EXPECT_EQ(growth_->growth(), Growth::kAllowed);
}

}  // namespace displaced_blocks_test
}  // namespace stalloc
