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

// Micro-batch 0 has one gradient that stays, at [0, 4); in micro-batch 1 one goes at once, at [8, 12), and one stays:
// its place at [4, 8) is kept for it from the first one on.
TEST_F(PassedPlacesTest, ALatecomersPlaceServesWhoeverIsTheLateOne) {
  DevicePlan plan = PlanOf({{4 * kMiB, 0, 20},
                            {2 * kMiB, 16 * kMiB, 1},
                            {4 * kMiB, 8 * kMiB, 1},
                            {3 * kMiB, 12 * kMiB, 1},
                            {4 * kMiB, 4 * kMiB, 16},
                            {2 * kMiB, 8 * kMiB, 1}});
  plan.cycle[0].entries[3].entry_class = EntryClass::kOptional;
  for (const bool kept : {false, true}) {
    plan.cycle[0].entries[4].kept_before = kept ? 4 : 0;
    Start(plan);
    EXPECT_EQ(Place(4 * kMiB), 0);
    EXPECT_EQ(Place(2 * kMiB), 16);
    Free(16);
    EXPECT_EQ(Place(4 * kMiB), kept ? 4 : 8);  // it stays: in the run this one is late
  }
  EXPECT_EQ(Place(3 * kMiB), 12);
  EXPECT_EQ(growth_->asked(), 0);
  EXPECT_EQ(Place(4 * kMiB), 8);   // whose place it was: where no block is
  EXPECT_EQ(Place(2 * kMiB), 15);  // in whose way that is
  EXPECT_EQ(growth_->asked(), 0);
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

TEST(PassedPlacesClassTest, APlaceThatIsKeptBeforeItsOwnerComesIsFoundFromThereOn) {
  DevicePlan plan = Varying({{2 * kMiB, 12 * kMiB, 1}, {4 * kMiB, 8 * kMiB, 1}, {4 * kMiB, 4 * kMiB, 30}});
  plan.cycle[0].entries[2].kept_before = 1;
  PassedPlaces passed(plan, 1);
  passed.Follow(0, 1);
  EXPECT_TRUE(passed.empty()) << "kept from the entry at 1 on, not for it";
  plan.cycle[0].entries[2].kept_before = 100;  // from the script's beginning on
  PassedPlaces early(plan, 1);
  early.Follow(0, 1);
  ASSERT_FALSE(early.empty());
  EXPECT_EQ(early.Find(1, kAnybody), 2);
  EXPECT_EQ(early.Find(2, kAnybody), PassedPlaces::kNone) << "its owner's life is not twice its own";
  EXPECT_EQ(early.FindOfSize(1, kGranulesOf4, 31, kAnybody), 2);
  EXPECT_EQ(early.FindOfSize(1, kGranulesOf4, 32, kAnybody), PassedPlaces::kNone);
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
