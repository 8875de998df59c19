// Slots whose owners did not come serve others of their size.
#include "allocator/engine/passed_places.h"

#include "tests/engine/dynamic_space_fixture.h"

namespace stalloc {
namespace {

class PassedPlacesTest : public DynamicSpaceTest {
 protected:
  // Two gradients that stay to the end at [0, 4) and [4, 8), the second of an expert; two more that go at once, at
  // [8, 12); what comes between them. The expert's may be left out.
  static DevicePlan PlanOfGradients() {
    DevicePlan plan = PlanOf({{4 * kMiB, 0, 20},
                              {2 * kMiB, 16 * kMiB, 1},
                              {4 * kMiB, 4 * kMiB, 18},
                              {3 * kMiB, 12 * kMiB, 1},
                              {4 * kMiB, 8 * kMiB, 1},
                              {kMiB, 18 * kMiB, 1},
                              {4 * kMiB, 8 * kMiB, 1},
                              {2 * kMiB, 8 * kMiB, 1}});
    plan.cycle[0].entries[2].entry_class = EntryClass::kOptional;
    return plan;
  }
  // All but `skipped` up to the first that goes at once.
  void ComeToShortOnes(bool skipped) {
    EXPECT_EQ(Place(4 * kMiB), 0);
    EXPECT_EQ(Place(2 * kMiB), 16);
    Free(16);
    if (!skipped) {
      EXPECT_EQ(Place(4 * kMiB), 4);
    }
    const std::int64_t next = Place(3 * kMiB);
    if (next >= 0) Free(next);
  }
};

TEST_F(PassedPlacesTest, WhatIsAskedForLaterGetsThePlaceThatIsIdleForLonger) {
  Start(PlanOfGradients());
  ComeToShortOnes(/*skipped=*/true);
  EXPECT_EQ(Place(4 * kMiB), 4);  // taken for the first that goes, but it stays
  const std::int64_t between = Place(kMiB);
  if (between >= 0) Free(between);
  EXPECT_EQ(Place(4 * kMiB), 8);  // there is no other idle
  Free(8);
  EXPECT_EQ(Place(2 * kMiB), 8);  // and so nothing is in the way
  EXPECT_EQ(growth_->asked(), 0);
}

TEST_F(PassedPlacesTest, WhatGoesAtOnceLeavesThePlaceToTheNext) {
  Start(PlanOfGradients());
  ComeToShortOnes(/*skipped=*/true);
  EXPECT_EQ(Place(4 * kMiB), 4);
  Free(4);
  const std::int64_t between = Place(kMiB);
  if (between >= 0) Free(between);
  EXPECT_EQ(Place(4 * kMiB), 4);
}

TEST_F(PassedPlacesTest, WhereAllCameEverybodyHasHisOwnPlace) {
  Start(PlanOfGradients());
  ComeToShortOnes(/*skipped=*/false);
  EXPECT_EQ(Place(4 * kMiB), 8);
  EXPECT_EQ(engine_->Stats().planned_hits, 5u);
}

// The class alone ----------------------------------------------------------------------------------------------------

constexpr auto kAnybody = [](std::int32_t) { return true; };
constexpr auto kNobody = [](std::int32_t) { return false; };
constexpr std::uint32_t kGranulesOf4 = 4 * kMiB / kBlockAlignment;

DevicePlan Varying(std::vector<Expected> requests) {
  requests.push_back({kMiB, kNoPlace, 1});
  return PlanOf(requests);
}

TEST(PassedPlacesClassTest, OfSeveralTheNearestIsFoundThatIsKeptLongEnough) {
  PassedPlaces passed(Varying({{4 * kMiB, 0, 30}, {4 * kMiB, 4 * kMiB, 9}, {4 * kMiB, 8 * kMiB, 1}}), 1);
  passed.Follow(0, 1);
  ASSERT_FALSE(passed.empty());
  EXPECT_TRUE(passed.Counts(0));
  EXPECT_TRUE(passed.Counts(1));
  EXPECT_FALSE(passed.Counts(2));
  EXPECT_EQ(passed.Find(2, kAnybody), 1);
  EXPECT_EQ(passed.Find(2, [](std::int32_t entry) { return entry == 0; }), 0);
  EXPECT_EQ(passed.Find(2, kNobody), PassedPlaces::kNone);
  EXPECT_EQ(passed.FindOfSize(3, kGranulesOf4, 20, kAnybody), 0);
  EXPECT_EQ(passed.FindOfSize(3, kGranulesOf4, 40, kAnybody), PassedPlaces::kNone);
  EXPECT_EQ(passed.FindOfSize(3, kGranulesOf4 + 1, 0, kAnybody), PassedPlaces::kNone);
}

TEST(PassedPlacesClassTest, WhatIsInUseIsNotAskedFor) {
  PassedPlaces passed(Varying({{4 * kMiB, 0, 30}, {4 * kMiB, 4 * kMiB, 9}, {4 * kMiB, 8 * kMiB, 1}}), 1);
  passed.Follow(0, 1);
  passed.Take(kGranulesOf4);
  EXPECT_EQ(passed.Find(2, kAnybody), 0);
  passed.Follow(0, 1);  // a phase of the same iteration
  EXPECT_EQ(passed.Find(2, kAnybody), 0);
  passed.GiveBack(kGranulesOf4);
  EXPECT_EQ(passed.Find(2, kAnybody), 1);
  passed.Take(kGranulesOf4);
  passed.Follow(0, 2);
  EXPECT_EQ(passed.Find(2, kAnybody), 1);
}

TEST(PassedPlacesClassTest, WhereNothingVariesOrLivesAreAlikeNoneCounts) {
  PassedPlaces fixed(PlanOf({{4 * kMiB, 0, 30}, {4 * kMiB, 4 * kMiB, 1}}), 1);
  fixed.Follow(0, 1);
  EXPECT_TRUE(fixed.empty());
  PassedPlaces alike(Varying({{4 * kMiB, 0, 30}, {4 * kMiB, 4 * kMiB, 20}}), 1);
  alike.Follow(0, 1);
  EXPECT_TRUE(alike.empty());
  PassedPlaces small(Varying({{4 * kMiB, 0, 30}, {4 * kMiB, 4 * kMiB, 1}}), kGranulesOf4 + 1);
  small.Follow(0, 1);
  EXPECT_TRUE(small.empty());
}

}  // namespace
}  // namespace stalloc
