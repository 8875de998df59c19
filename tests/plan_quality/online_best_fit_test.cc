#include "bench/plan_quality/online_best_fit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <string>
#include <vector>

#include "bench/plan_quality/stop_after.h"
#include "planner/packing/problem/plan_check.h"
#include "planner/packing/search/size_first_fit.h"
#include "tests/packing/naive.h"

namespace stalloc::planner {
namespace {

using ::testing::ElementsAre;

TEST(OnlineBestFitTest, PacksAnEmptyProblem) {
  const Packing packing = MakeOnlineBestFit()->Solve({}, {});
  EXPECT_TRUE(packing.offsets.empty());
  EXPECT_EQ(packing.height, 0u);
}

TEST(OnlineBestFitTest, PacksRandomProblemsValidlyAndReportsItsHeight) {
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
    const Packing packing = MakeOnlineBestFit()->Solve(problem, options);
    if (packing.offsets.empty()) continue;  // a machine so slow that 3 ms were not enough
    ++finished;
    ASSERT_TRUE(NaiveIsValid(problem, packing)) << "round " << round;
    ASSERT_TRUE(CheckPacking(problem, packing).ok()) << "round " << round;
    ASSERT_EQ(reported, packing.height);
    ASSERT_GE(packing.height, NaiveLoadBound(problem));
  }
  EXPECT_GE(finished, 20);
}

TEST(OnlineBestFitTest, SaysThatItDidNotFinish) {
  std::mt19937_64 random(62);
  const Problem problem = RandomProblem({.blocks = 500, .ticks = 100}, random);
  const std::atomic<bool> stop{true};
  EXPECT_TRUE(MakeOnlineBestFit()->Solve(problem, {.stop = &stop}).offsets.empty());
}

TEST(OnlineBestFitTest, PacksEqualLifetimesToTheBound) {
  Problem problem;
  for (std::uint64_t i = 0; i < 40; ++i) problem.blocks.push_back({.id = i, .bytes = 1 + i % 7, .life = {2, 8}});
  EXPECT_EQ(MakeOnlineBestFit()->Solve(problem, {}).height, LoadBound(problem));
}

std::vector<Offset> OffsetsOf(const Problem& problem) { return MakeOnlineBestFit()->Solve(problem, {}).offsets; }

TEST(OnlineBestFitTest, FreedNeighboursAreJoined) {
  // 0 and 1 are freed side by side; 3 needs both of their ranges, below 2 which lives on.
  const Problem problem{{{.id = 0, .bytes = 4, .life = {0, 3}},
                         {.id = 1, .bytes = 4, .life = {0, 4}},
                         {.id = 2, .bytes = 1, .life = {0, 9}},
                         {.id = 3, .bytes = 8, .life = {4, 9}}}};
  EXPECT_THAT(OffsetsOf(problem), ElementsAre(0, 4, 8, 0));
}

TEST(OnlineBestFitTest, TheSmallestRangeIsTaken) {
  // Free are [0, 4) and, from tick 2 on, [6, 8); 4 is 2 bytes.
  const Problem problem{{{.id = 0, .bytes = 4, .life = {0, 2}},
                         {.id = 1, .bytes = 2, .life = {0, 9}},
                         {.id = 2, .bytes = 2, .life = {0, 2}},
                         {.id = 3, .bytes = 2, .life = {0, 9}},
                         {.id = 4, .bytes = 2, .life = {2, 9}}}};
  EXPECT_THAT(OffsetsOf(problem), ElementsAre(0, 4, 6, 8, 6));
}

TEST(OnlineBestFitTest, AFreeRangeAtTheTopGrows) {
  const Problem problem{{{.id = 0, .bytes = 4, .life = {0, 9}},
                         {.id = 1, .bytes = 2, .life = {0, 2}},
                         {.id = 2, .bytes = 5, .life = {2, 9}}}};
  const Packing packing = MakeOnlineBestFit()->Solve(problem, {});
  EXPECT_THAT(packing.offsets, ElementsAre(0, 4, 4));
  EXPECT_EQ(packing.height, 9u);
}

TEST(OnlineBestFitTest, KnowsNoLifetimesAndSoFragmentsWhereFirstFitBySizeDoesNot) {
  // Short and long blocks by turns; then one as large as all the short ones together: online it starts in the range
  // below the top that the last short one left.
  Problem problem;
  for (std::uint64_t i = 0; i < 8; ++i)
    problem.blocks.push_back({.id = i, .bytes = 1, .life = {0, i % 2 == 0 ? 3 : 1}});
  problem.blocks.push_back({.id = 8, .bytes = 4, .life = {1, 3}});
  EXPECT_EQ(LoadBound(problem), 8u);
  EXPECT_EQ(MakeOnlineBestFit()->Solve(problem, {}).height, 7u + 4u);
  EXPECT_EQ(MakeSizeFirstFit()->Solve(problem, {}).height, 8u);
}

TEST(OnlineBestFitTest, ABlockWithTwoLifetimesKeepsItsPlaceBetweenThem) {
  const Problem problem{
      {{.id = 0, .bytes = 4, .life = {6, 9}, .second_life = Lifetime{0, 2}}, {.id = 1, .bytes = 4, .life = {3, 5}}}};
  EXPECT_THAT(OffsetsOf(problem), ElementsAre(0, 4));
}

TEST(SizeFirstFitTest, PlacesLargestFirstThenByBegin) {
  const Problem problem{{{.id = 0, .bytes = 2, .life = {0, 9}},
                         {.id = 1, .bytes = 3, .life = {4, 9}},
                         {.id = 2, .bytes = 3, .life = {0, 5}}}};
  EXPECT_THAT(MakeSizeFirstFit()->Solve(problem, {}).offsets, ElementsAre(6, 3, 0));
}

}  // namespace
}  // namespace stalloc::planner
