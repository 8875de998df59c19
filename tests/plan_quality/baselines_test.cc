#include "bench/plan_quality/baselines/baselines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <string>
#include <vector>

#include "bench/plan_quality/baselines/stop_after.h"
#include "planner/packing/problem/plan_check.h"
#include "planner/packing/search/size_first_fit.h"
#include "tests/packing/naive.h"

namespace stalloc::planner {
namespace {

using ::testing::ElementsAre;

// What must hold for each of them ---------------------------------------------------------------------------------

class BaselineTest : public testing::TestWithParam<std::size_t> {
 protected:
  std::unique_ptr<Solver> baseline_ = std::move(MakeBaselines()[GetParam()]);
};

INSTANTIATE_TEST_SUITE_P(All, BaselineTest, testing::Range<std::size_t>(0, 7),
                         [](const testing::TestParamInfo<std::size_t>& param) {
                           return std::string(MakeBaselines().at(param.param)->name());
                         });

TEST(BaselineListTest, HasAsManyAsAreTestedAbove) { EXPECT_EQ(MakeBaselines().size(), 7u); }

TEST_P(BaselineTest, PacksAnEmptyProblem) {
  const Packing packing = baseline_->Solve({}, {});
  EXPECT_TRUE(packing.offsets.empty());
  EXPECT_EQ(packing.height, 0u);
}

TEST_P(BaselineTest, PacksRandomProblemsValidlyAndReportsItsHeight) {
  constexpr std::uint64_t kSeed = 61;
  SCOPED_TRACE(kSeed);
  std::mt19937_64 random(kSeed);
  int finished = 0;
  for (int round = 0; round < 60; ++round) {
    const Problem problem = RandomProblem({.blocks = 1 + round,
                                           .ticks = 40,
                                           .max_bytes = 50,
                                           .second_lives = round % 2 == 0,
                                           .max_alignment = round % 3 == 0 ? Bytes{16} : Bytes{1}},
                                          random);
    Bytes reported = 0;
    SolveOptions options;
    const StopAfter clock(round % 3 == 0 ? 0.03 : 0.003);
    options.stop = clock.flag();
    options.on_progress = [&](Bytes height) { reported = height; };
    const Packing packing = baseline_->Solve(problem, options);
    if (packing.offsets.empty()) continue;  // a machine so slow that 3 ms were not enough
    ++finished;
    ASSERT_TRUE(NaiveIsValid(problem, packing)) << "round " << round;
    ASSERT_TRUE(CheckPacking(problem, packing).ok()) << "round " << round;
    ASSERT_EQ(reported, packing.height);
    ASSERT_GE(packing.height, NaiveLoadBound(problem));
  }
  EXPECT_GE(finished, 20);
}

TEST_P(BaselineTest, SaysThatItDidNotFinish) {
  std::mt19937_64 random(62);
  const Problem problem = RandomProblem({.blocks = 500, .ticks = 100}, random);
  const std::atomic<bool> stop{true};
  EXPECT_TRUE(baseline_->Solve(problem, {.stop = &stop}).offsets.empty());
}

TEST_P(BaselineTest, PacksEqualLifetimesToTheBound) {
  Problem problem;
  for (std::uint64_t i = 0; i < 40; ++i) problem.blocks.push_back({.id = i, .bytes = 1 + i % 7, .life = {2, 8}});
  EXPECT_EQ(baseline_->Solve(problem, {}).height, LoadBound(problem));
}

// One rule each, worked out by hand -----------------------------------------------------------------------------------

std::vector<Offset> OffsetsOf(std::unique_ptr<Solver> solver, const Problem& problem) {
  return solver->Solve(problem, {}).offsets;
}

TEST(OnlineTest, FreedNeighboursAreJoined) {
  // 0 and 1 are freed side by side; 3 needs both of their ranges, below 2 which lives on.
  const Problem problem{{{.id = 0, .bytes = 4, .life = {0, 3}},
                         {.id = 1, .bytes = 4, .life = {0, 4}},
                         {.id = 2, .bytes = 1, .life = {0, 9}},
                         {.id = 3, .bytes = 8, .life = {4, 9}}}};
  EXPECT_THAT(OffsetsOf(MakeOnlineFirstFit(), problem), ElementsAre(0, 4, 8, 0));
  EXPECT_THAT(OffsetsOf(MakeOnlineBestFit(), problem), ElementsAre(0, 4, 8, 0));
}

// Free are [0, 4) and, from tick 2 on, [6, 8); 4 is 2 bytes.
Problem TwoRangesAreFree() {
  return {{{.id = 0, .bytes = 4, .life = {0, 2}},
           {.id = 1, .bytes = 2, .life = {0, 9}},
           {.id = 2, .bytes = 2, .life = {0, 2}},
           {.id = 3, .bytes = 2, .life = {0, 9}},
           {.id = 4, .bytes = 2, .life = {2, 9}}}};
}

TEST(OnlineTest, FirstFitTakesTheLowestRangeAndBestFitTheSmallest) {
  EXPECT_THAT(OffsetsOf(MakeOnlineFirstFit(), TwoRangesAreFree()), ElementsAre(0, 4, 6, 8, 0));
  EXPECT_THAT(OffsetsOf(MakeOnlineBestFit(), TwoRangesAreFree()), ElementsAre(0, 4, 6, 8, 6));
}

TEST(OnlineTest, AFreeRangeAtTheTopGrows) {
  const Problem problem{{{.id = 0, .bytes = 4, .life = {0, 9}},
                         {.id = 1, .bytes = 2, .life = {0, 2}},
                         {.id = 2, .bytes = 5, .life = {2, 9}}}};
  const Packing packing = MakeOnlineFirstFit()->Solve(problem, {});
  EXPECT_THAT(packing.offsets, ElementsAre(0, 4, 4));
  EXPECT_EQ(packing.height, 9u);
}

TEST(OnlineTest, KnowsNoLifetimesAndSoFragmentsWhereGreedyBySizeDoesNot) {
  // Short and long blocks by turns; then one as large as all the short ones together: online it starts in the range
  // below the top that the last short one left.
  Problem problem;
  for (std::uint64_t i = 0; i < 8; ++i)
    problem.blocks.push_back({.id = i, .bytes = 1, .life = {0, i % 2 == 0 ? 3 : 1}});
  problem.blocks.push_back({.id = 8, .bytes = 4, .life = {1, 3}});
  EXPECT_EQ(LoadBound(problem), 8u);
  EXPECT_EQ(MakeOnlineFirstFit()->Solve(problem, {}).height, 7u + 4u);
  EXPECT_EQ(MakeOnlineBestFit()->Solve(problem, {}).height, 7u + 4u);
  EXPECT_EQ(MakeGreedyBySize()->Solve(problem, {}).height, 8u);
}

TEST(OnlineTest, ABlockWithTwoLifetimesKeepsItsPlaceBetweenThem) {
  const Problem problem{
      {{.id = 0, .bytes = 4, .life = {6, 9}, .second_life = Lifetime{0, 2}}, {.id = 1, .bytes = 4, .life = {3, 5}}}};
  EXPECT_THAT(OffsetsOf(MakeOnlineFirstFit(), problem), ElementsAre(0, 4));
}

TEST(GreedyBySizeTest, PlacesLargestFirstThenByBegin) {
  const Problem problem{{{.id = 0, .bytes = 2, .life = {0, 9}},
                         {.id = 1, .bytes = 3, .life = {4, 9}},
                         {.id = 2, .bytes = 3, .life = {0, 5}}}};
  EXPECT_THAT(OffsetsOf(MakeGreedyBySize(), problem), ElementsAre(6, 3, 0));
}

TEST(GreedyBySizeTest, IsTheRuleOfThePlannersOwnFirstPass) {
  std::mt19937_64 random(63);
  for (int round = 0; round < 20; ++round) {
    const Problem problem = RandomProblem({.blocks = 200, .ticks = 100, .second_lives = round % 2 == 0}, random);
    EXPECT_EQ(MakeGreedyBySize()->Solve(problem, {}).height, MakeSizeFirstFit()->Solve(problem, {}).height);
  }
}

TEST(TfliteGreedyTest, TakesTheSmallestGapThatIsLargeEnough) {
  // By size: 0 [0, 9), 1 [9, 17), 2 [17, 24), 3 [24, 30), 4 [30, 35). At tick 3 only 1, 3 are left: gaps of 9 and 7.
  const Problem problem{{{.id = 0, .bytes = 9, .life = {0, 3}},
                         {.id = 1, .bytes = 8, .life = {0, 9}},
                         {.id = 2, .bytes = 7, .life = {0, 3}},
                         {.id = 3, .bytes = 6, .life = {0, 9}},
                         {.id = 4, .bytes = 5, .life = {3, 9}},
                         {.id = 5, .bytes = 4, .life = {3, 9}}}};
  EXPECT_THAT(OffsetsOf(MakeTfliteGreedy(), problem), ElementsAre(0, 9, 17, 24, 17, 0));
  EXPECT_THAT(OffsetsOf(MakeGreedyBySize(), problem), ElementsAre(0, 9, 17, 24, 0, 5));
}

TEST(TfliteGreedyTest, BreaksTiesByIndexAndXlaByLengthOfLife) {
  const Problem problem{{{.id = 0, .bytes = 4, .life = {0, 2}}, {.id = 1, .bytes = 4, .life = {1, 9}}}};
  EXPECT_THAT(OffsetsOf(MakeTfliteGreedy(), problem), ElementsAre(0, 4));
  EXPECT_THAT(OffsetsOf(MakeXlaSpatial(), problem), ElementsAre(4, 0));
}

TEST(XlaSpatialTest, TheRoomUnderTheTopCompetesWithGapsBelow) {
  // 0 makes the height 10. 1 and 2 lie at 0 and 4; once 1 has gone, 3 has the choice of [0, 4) and of [8, 10).
  const Problem problem{{{.id = 0, .bytes = 10, .life = {0, 2}},
                         {.id = 1, .bytes = 4, .life = {2, 8}},
                         {.id = 2, .bytes = 4, .life = {6, 12}},
                         {.id = 3, .bytes = 1, .life = {9, 10}}}};
  EXPECT_THAT(OffsetsOf(MakeXlaSpatial(), problem), ElementsAre(0, 0, 4, 8));
  EXPECT_THAT(OffsetsOf(MakeTfliteGreedy(), problem), ElementsAre(0, 0, 4, 0));
}

TEST(XlaTemporalTest, PlacesTheLongestLivedFirst) {
  const Problem problem{{{.id = 0, .bytes = 8, .life = {0, 2}},
                         {.id = 1, .bytes = 1, .life = {0, 9}},
                         {.id = 2, .bytes = 2, .life = {0, 9}}}};
  EXPECT_THAT(OffsetsOf(MakeXlaTemporal(), problem), ElementsAre(3, 2, 0));
}

TEST(UsmpHillClimbTest, ClimbsFromTheSizeOrderToTheOptimum) {
  constexpr std::uint64_t kSeed = 64;
  SCOPED_TRACE(kSeed);
  std::mt19937_64 random(kSeed);
  int improved = 0;
  for (int round = 0; round < 40; ++round) {
    const Problem problem = RandomProblem({.blocks = 6, .ticks = 8}, random);
    const Bytes optimum = BruteForceOptimum(problem);
    std::vector<Bytes> heights;
    SolveOptions options;
    const StopAfter clock(0.02);
    options.stop = clock.flag();
    options.on_progress = [&](Bytes height) { heights.push_back(height); };
    ASSERT_GE(MakeUsmpHillClimb()->Solve(problem, options).height, optimum);
    ASSERT_FALSE(heights.empty());
    EXPECT_TRUE(std::is_sorted(heights.rbegin(), heights.rend()));
    improved += heights.front() > optimum && heights.back() == optimum ? 1 : 0;
  }
  EXPECT_GT(improved, 0);
}

TEST(UsmpHillClimbTest, WithoutADeadlineEndsAtTheCapacity) {
  std::mt19937_64 random(65);
  const Problem problem = RandomProblem({.blocks = 60, .ticks = 30}, random);
  SolveOptions options;
  options.capacity = 10 * LoadBound(problem);
  EXPECT_LE(MakeUsmpHillClimb()->Solve(problem, options).height, *options.capacity);
}

}  // namespace
}  // namespace stalloc::planner
