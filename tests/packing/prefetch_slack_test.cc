#include "planner/packing/finish/prefetch_slack.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "planner/packing/finish/hand_overs.h"
#include "planner/packing/portfolio.h"
#include "tests/packing/naive.h"

namespace stalloc::planner {
namespace {

Block OnStream(Bytes bytes, Lifetime life, std::uint32_t stream) {
  return {.bytes = bytes, .life = life, .stream = stream};
}

Problem Ahead(const Problem& problem, const CycleAxis& cycle = {}) {
  return ExtendForPrefetch(problem, cycle).value_or(problem);
}

TEST(PrefetchSlackTest, ABlockBesideTheMainStreamHasItsPlaceSinceItsStreamFreedOneAsLarge) {
  Problem problem{{OnStream(100, {90, 100}, 0), OnStream(8, {5, 10}, 1), OnStream(4, {11, 12}, 1),
                   OnStream(8, {20, 25}, 1), OnStream(8, {12, 14}, 2)}};
  const Problem ahead = Ahead(problem);
  EXPECT_EQ(ahead.blocks[0].life, problem.blocks[0].life);
  EXPECT_EQ(ahead.blocks[1].life, (Lifetime{0, 10})) << "the first of its stream";
  EXPECT_EQ(ahead.blocks[2].life, (Lifetime{10, 12}));
  EXPECT_EQ(ahead.blocks[3].life, (Lifetime{10, 25})) << "the smaller one between says nothing";
  EXPECT_EQ(ahead.blocks[4].life, (Lifetime{0, 14}));
}

TEST(PrefetchSlackTest, NoPeakBecomesHigher) {
  // The main stream's 90 of 100 bytes leave room for 8 more before tick 30, and from tick 40 on.
  const Problem problem{{OnStream(90, {0, 50}, 0), OnStream(10, {30, 40}, 0), OnStream(8, {45, 50}, 1)}};
  EXPECT_EQ(Ahead(problem).blocks[2].life, (Lifetime{40, 50}));
  EXPECT_EQ(LoadBound(Ahead(problem)), LoadBound(problem));
}

TEST(PrefetchSlackTest, OfTwoStreamsTheBlockThatComesFirstHasTheRoom) {
  // Until tick 40 there is room for one of them, and for both from then on.
  const Problem problem{{OnStream(90, {0, 40}, 0), OnStream(80, {40, 50}, 0), OnStream(100, {80, 90}, 0),
                         OnStream(10, {45, 50}, 1), OnStream(10, {40, 45}, 2)}};
  const Problem ahead = Ahead(problem);
  EXPECT_EQ(ahead.blocks[4].life, (Lifetime{0, 45}));
  EXPECT_EQ(ahead.blocks[3].life, (Lifetime{40, 50}));
}

TEST(PrefetchSlackTest, NothingChangesWithoutAnotherStreamOrRoom) {
  EXPECT_FALSE(ExtendForPrefetch({}, {}));
  EXPECT_FALSE(ExtendForPrefetch({{OnStream(8, {0, 1}, 1), OnStream(8, {5, 6}, 1)}}, {}));
  EXPECT_FALSE(ExtendForPrefetch({{OnStream(8, {0, 5}, 0), OnStream(8, {5, 6}, 1)}}, {}));
}

TEST(PrefetchSlackTest, TheCyclesBlocksStayInItAndArcsAsTheyAre) {
  Block arc = OnStream(8, {70, 80}, 1);
  arc.second_life = Lifetime{60, 62};
  const Problem problem{{OnStream(100, {0, 1}, 0), OnStream(8, {65, 66}, 1), arc}};
  const Problem ahead = Ahead(problem, {60, 80});
  EXPECT_EQ(ahead.blocks[1].life, (Lifetime{60, 66}));
  EXPECT_EQ(ahead.blocks[2].life, arc.life);
}

TEST(PrefetchSlackTest, ItsPackingsAreTheProblems) {
  std::mt19937_64 random(71);
  int changed = 0;
  for (int round = 0; round < 40; ++round) {
    Problem problem = RandomProblem({.blocks = 100, .ticks = 80, .max_bytes = 3000, .second_lives = true}, random);
    for (Block& block : problem.blocks) block.stream = static_cast<std::uint32_t>(random() % 3);
    const Problem ahead = Ahead(problem);
    ASSERT_EQ(LoadBound(ahead), LoadBound(problem));
    const Packing packing = MakePortfolio()->Solve(problem, {.work = 1'000'000});
    ASSERT_TRUE(NaiveIsValid(problem, packing)) << "round " << round;
    for (std::size_t i = 0; i < problem.blocks.size(); ++i) {
      ASSERT_LE(ahead.blocks[i].life.begin, problem.blocks[i].life.begin);
      ASSERT_EQ(ahead.blocks[i].life.end, problem.blocks[i].life.end);
      changed += ahead.blocks[i].life != problem.blocks[i].life;
    }
  }
  EXPECT_GT(changed, 1000);
}

// Layers whose weights are gathered on a second stream while the layer before is computed, as FSDP2 does: the main
// stream's copy of them is freed when the layer is done, just before the next but one is gathered.
TEST(PrefetchSlackTest, WhatIsGatheredForTheNextLayerTakesNothingThatTheLastOneLeavesAtThatMoment) {
  constexpr int kLayers = 16;
  constexpr Tick kLayer = 20;
  Problem problem{{OnStream(400, {0, kLayers * kLayer + 40}, 0), OnStream(150, {0, 10}, 0)}};
  for (Tick layer = 0; layer < kLayers; ++layer) {
    const Tick begin = 10 + layer * kLayer;
    problem.blocks.push_back(OnStream(40, {begin, begin + kLayer + 1}, 1));           // gathered
    problem.blocks.push_back(OnStream(40, {begin + kLayer, begin + 2 * kLayer}, 0));  // weights
  }
  const Packing packing = MakePortfolio()->Solve(problem, {.lower_bound = LoadBound(problem)});
  EXPECT_EQ(packing.height, LoadBound(problem));
  for (const HandOver& hand_over : FindHandOvers(problem, packing.offsets, {})) {
    const Block& from = problem.blocks[hand_over.from];
    const Block& to = problem.blocks[hand_over.to];
    if (to.stream == 0 || hand_over.from <= 1) continue;
    EXPECT_GE(to.life.begin - from.life.end, kLayer - 1);
  }
}

}  // namespace
}  // namespace stalloc::planner
