#include "planner/packing/portfolio.h"

#include <gtest/gtest.h>

#include <random>

#include "planner/packing/problem/plan_check.h"
#include "planner/packing/search/layer_clusters.h"
#include "planner/packing/search/near_peak.h"
#include "planner/packing/search/size_classes.h"
#include "planner/packing/search/size_first_fit.h"
#include "tests/packing/naive.h"

namespace stalloc::planner {
namespace {

std::vector<BlockIndex> Sorted(std::vector<BlockIndex> blocks) {
  std::sort(blocks.begin(), blocks.end());
  return blocks;
}

std::vector<BlockIndex> AllBlocks(const Instance& instance) {
  std::vector<BlockIndex> all(instance.size());
  for (BlockIndex i = 0; i < all.size(); ++i) all[i] = i;
  return all;
}

TEST(PortfolioTest, ASeedGivesOneResultOnAnyNumberOfThreads) {
  std::mt19937_64 random(51);
  for (int round = 0; round < 3; ++round) {
    const Problem problem = RandomProblem({.blocks = 60, .ticks = 300, .max_bytes = 99}, random);
    const Packing once = MakePortfolio()->Solve(problem, {.seed = 5, .threads = 1});
    const Packing again = MakePortfolio()->Solve(problem, {.seed = 5, .threads = 1});
    const Packing threaded = MakePortfolio()->Solve(problem, {.seed = 5, .threads = 4});
    EXPECT_EQ(once.height, again.height);
    EXPECT_EQ(once.offsets, again.offsets);
    EXPECT_EQ(once.height, threaded.height);
    EXPECT_EQ(once.offsets, threaded.offsets);
  }
}

TEST(SizeClassTest, AnOrderHoldsEveryBlockOnceBigClassesFirst) {
  std::mt19937_64 random(52);
  const Problem problem = RandomProblem({.blocks = 100, .ticks = 200, .max_bytes = 1000}, random);
  const Instance instance(problem);
  const StackOrder order = SizeClassOrder(instance, {.thresholds = {800, 300}, .light = 20});
  EXPECT_EQ(Sorted(order.blocks()), AllBlocks(instance));
  const auto class_of = [](Bytes bytes) { return bytes >= 800 ? 0 : bytes >= 300 ? 1 : bytes >= 20 ? 2 : 3; };
  for (std::size_t i = 1; i < order.size(); ++i) {
    const Item& before = instance[order.blocks()[i - 1]];
    const Item& after = instance[order.blocks()[i]];
    ASSERT_LE(class_of(before.bytes), class_of(after.bytes));
    if (class_of(before.bytes) == class_of(after.bytes) && after.bytes >= 20) {
      ASSERT_LE(before.start_step, after.start_step);
    }
  }
}

// A persistent block, two layers of three blocks whose ends mirror their starts, and scratch: within, between and
// after.
Problem TwoLayers() {
  Problem problem{{{.id = 0, .bytes = 10, .life = {0, 1000}},
                   {.id = 1, .bytes = 4, .life = {10, 400}},
                   {.id = 2, .bytes = 8, .life = {11, 399}},
                   {.id = 3, .bytes = 2, .life = {12, 398}},
                   {.id = 4, .bytes = 4, .life = {110, 300}},
                   {.id = 5, .bytes = 8, .life = {111, 299}},
                   {.id = 6, .bytes = 2, .life = {112, 298}},
                   {.id = 7, .bytes = 9, .life = {20, 22}},
                   {.id = 8, .bytes = 1, .life = {200, 210}}}};
  for (Tick tick = 500; tick < 600; tick += 10) {
    problem.blocks.push_back({.id = problem.blocks.size(), .bytes = 1, .life = {tick, tick + 1}});
  }
  return problem;
}

TEST(LayerClustersTest, UnitesTheBlocksOfALayerAndStacksTheGreatestLowest) {
  const Problem problem = TwoLayers();
  const Instance instance(problem);
  const StackOrder order = LayerClusterOrder(instance, {.window = 1, .min_length = 2});
  ASSERT_EQ(order.size(), instance.size() - 4);
  EXPECT_EQ(std::vector<BlockIndex>(order[0].begin(), order[0].end()), (std::vector<BlockIndex>{0}));
  EXPECT_EQ(std::vector<BlockIndex>(order[1].begin(), order[1].end()), (std::vector<BlockIndex>{2, 1, 3}));
  EXPECT_EQ(std::vector<BlockIndex>(order[2].begin(), order[2].end()), (std::vector<BlockIndex>{5, 4, 6}));
  EXPECT_EQ(std::vector<BlockIndex>(order[3].begin(), order[3].end()), (std::vector<BlockIndex>{7}));
}

TEST(LayerClustersTest, LeavesSmallMembersAndSmallStacksToTheSizeOrder) {
  const Problem problem = TwoLayers();
  const Instance instance(problem);
  const StackOrder without_small = LayerClusterOrder(instance, {.window = 1, .min_length = 2, .min_bytes = 3});
  EXPECT_EQ(without_small[1].size(), 2u);
  EXPECT_EQ(Sorted(without_small.blocks()), AllBlocks(instance));
  const StackOrder dissolved = LayerClusterOrder(instance, {.window = 1, .min_length = 2, .min_total = 15});
  EXPECT_EQ(dissolved.size(), instance.size());
}

TEST(PlacerTest, AStackKeepsItsMembersTogetherAndAligned) {
  Problem problem = TwoLayers();
  problem.blocks[1].alignment = 16;
  const Instance instance(problem);
  const SolveOptions options;
  SearchState state(instance, options);
  Evaluator evaluator(instance, state, 1);
  const std::optional<Packing> packing =
      evaluator.FirstFit(LayerClusterOrder(instance, {.window = 1, .min_length = 2}));
  ASSERT_TRUE(packing.has_value());
  EXPECT_TRUE(NaiveIsValid(problem, *packing));
  EXPECT_EQ(packing->offsets[1] % 16, 0u);
  EXPECT_EQ(packing->offsets[1], packing->offsets[2] + 16);  // 8 bytes, rounded up to the next member's alignment
  EXPECT_EQ(packing->offsets[3], packing->offsets[1] + 4);
}

TEST(NearPeakTest, ABlockIsNearThePeakIfItIsAliveAtAsMuchOfTheLoad) {
  const Problem problem{{{.id = 0, .bytes = 10, .life = {0, 40}},
                         {.id = 1, .bytes = 70, .life = {0, 10}},
                         {.id = 2, .bytes = 90, .life = {20, 30}},
                         {.id = 3, .bytes = 5, .life = {30, 40}}}};
  const Instance instance(problem);
  EXPECT_EQ(BlocksNearPeak(instance, 0.95), (std::vector<BlockIndex>{0, 2}));
  EXPECT_EQ(BlocksNearPeak(instance, 0.8), (std::vector<BlockIndex>{0, 1, 2}));
  EXPECT_EQ(BlocksNearPeak(instance, 0.1), AllBlocks(instance));
}

}  // namespace
}  // namespace stalloc::planner
