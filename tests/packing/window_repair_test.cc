#include "planner/packing/window_repair.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "planner/packing/exact_window.h"
#include "planner/packing/plan_check.h"
#include "planner/packing/repair_window.h"
#include "planner/packing/search_state.h"
#include "planner/packing/window_choice.h"
#include "tests/packing/naive.h"

namespace stalloc::planner {
namespace {

Problem SomeProblem(int blocks, std::mt19937_64& random) {
  return RandomProblem(
      {.blocks = blocks, .ticks = 2 * blocks, .max_bytes = 64, .second_lives = true, .max_alignment = 4}, random);
}

// One on top of the other: valid, and as bad as can be.
std::vector<Offset> Tower(const Problem& problem) {
  std::vector<Offset> offsets;
  Offset top = 0;
  for (const Block& block : problem.blocks) {
    offsets.push_back(RoundUp(top, block.alignment));
    top = offsets.back() + block.bytes;
  }
  return offsets;
}

Packing PackingOf(const Problem& problem, const std::vector<Offset>& offsets) {
  Packing packing{offsets, 0, 0};
  for (std::size_t i = 0; i < offsets.size(); ++i) {
    packing.height = std::max(packing.height, offsets[i] + problem.blocks[i].bytes);
  }
  return packing;
}

std::vector<BlockIndex> AllByOffset(const std::vector<Offset>& offsets) {
  std::vector<BlockIndex> order(offsets.size());
  std::iota(order.begin(), order.end(), BlockIndex{0});
  std::sort(order.begin(), order.end(), [&](BlockIndex a, BlockIndex b) { return offsets[a] < offsets[b]; });
  return order;
}

TEST(RepairWindowTest, PlacesAroundWhatStaysAndSaysWhatFoundNoRoom) {
  // Block 0 stays at [4, 8) all the time; 1 and 2 of 4 bytes each live together and are taken out.
  Problem problem;
  problem.blocks = {{.id = 0, .bytes = 4, .life = {0, 9}},
                    {.id = 1, .bytes = 4, .life = {0, 9}},
                    {.id = 2, .bytes = 4, .life = {0, 9}}};
  const Instance instance(problem);
  const std::vector<Offset> offsets = {4, kUnplaced, kUnplaced};
  const std::vector<BlockIndex> by_offset = {0};
  const std::vector<std::uint32_t> order = {0, 1};
  Random random(1);
  RepairWindow roomy(instance, offsets, by_offset, {1, 2}, 12);
  EXPECT_EQ(roomy.Place(order, RepairWindow::Fit::kLowest, 100, random), 0u);
  EXPECT_EQ(roomy.offsets(), (std::vector<Offset>{0, 8}));
  EXPECT_EQ(roomy.Place(order, RepairWindow::Fit::kHighest, 100, random), 0u);
  EXPECT_EQ(roomy.offsets(), (std::vector<Offset>{8, 0}));
  RepairWindow tight(instance, offsets, by_offset, {1, 2}, 11);
  EXPECT_EQ(tight.Place(order, RepairWindow::Fit::kTightest, 100, random), 4u);
  EXPECT_EQ(tight.offsets(), (std::vector<Offset>{0, kUnplaced}));
}

TEST(RepairWindowTest, NeverOverlapsWhateverOrderAndFit) {
  std::mt19937_64 source(3);
  for (int round = 0; round < 200; ++round) {
    const Problem problem = SomeProblem(14, source);
    const Instance instance(problem);
    std::vector<Offset> offsets = Tower(problem);
    const std::vector<BlockIndex> by_offset = AllByOffset(offsets);
    RepairWindow window(instance, offsets, by_offset, {1, 4, 5, 9, 13}, std::numeric_limits<Bytes>::max() / 2);
    std::vector<std::uint32_t> order = {0, 1, 2, 3, 4};
    std::shuffle(order.begin(), order.end(), source);
    Random random(source());
    const auto fit = static_cast<RepairWindow::Fit>(round % 4);
    ASSERT_EQ(window.Place(order, fit, 0, random), 0u);
    for (std::size_t i = 0; i < window.taken().size(); ++i) offsets[window.taken()[i]] = window.offsets()[i];
    ASSERT_TRUE(NaiveIsValid(problem, PackingOf(problem, offsets))) << "round " << round;
  }
}

TEST(ChooseWindowTest, TakesTheHomelessBlockFirstAndNoneTwice) {
  std::mt19937_64 source(5);
  const Problem problem = SomeProblem(60, source);
  const Instance instance(problem);
  std::vector<Offset> offsets = Tower(problem);
  std::vector<BlockIndex> by_offset = AllByOffset(offsets);
  const BlockIndex homeless = by_offset.back();
  by_offset.pop_back();
  offsets[homeless] = kUnplaced;
  Random random(1);
  std::size_t largest = 0;
  for (int i = 0; i < 200; ++i) {
    std::vector<BlockIndex> taken = ChooseWindow(instance, offsets, by_offset, homeless, 2000, random);
    ASSERT_EQ(taken.front(), homeless);
    largest = std::max(largest, taken.size());
    std::sort(taken.begin(), taken.end());
    ASSERT_EQ(std::adjacent_find(taken.begin(), taken.end()), taken.end());
  }
  EXPECT_GT(largest, 10u);
}

TEST(FitWindowTest, FitsAroundWhatStaysExactlyWhenItCanBe) {
  std::mt19937_64 source(19);
  for (int round = 0; round < 30; ++round) {
    const Problem problem = SomeProblem(6, source);
    const Instance instance(problem);
    const Bytes optimum = BruteForceOptimum(problem);
    std::vector<Offset> offsets(problem.blocks.size(), kUnplaced);
    std::vector<BlockIndex> all = {0, 1, 2, 3, 4, 5};
    Work work = 0;
    const auto whole = FitWindow(instance, offsets, {}, all, optimum, 100000, work);
    ASSERT_TRUE(whole.has_value()) << "round " << round;
    EXPECT_TRUE(NaiveIsValid(problem, PackingOf(problem, *whole)));
    EXPECT_FALSE(FitWindow(instance, offsets, {}, all, optimum - 1, 100000, work).has_value());
    // Two are taken out of a packing that fits: there is always room for them.
    const std::vector<BlockIndex> stay = {0, 2, 3, 5};
    const auto again = FitWindow(instance, *whole, stay, std::vector<BlockIndex>{1, 4}, optimum, 100000, work);
    ASSERT_TRUE(again.has_value());
    std::vector<Offset> repaired = *whole;
    repaired[1] = (*again)[0];
    repaired[4] = (*again)[1];
    EXPECT_TRUE(NaiveIsValid(problem, PackingOf(problem, repaired)));
    EXPECT_LE(PackingOf(problem, repaired).height, optimum);
  }
}

std::optional<std::vector<Offset>> Repaired(const Problem& problem, Bytes ceiling, int threads) {
  const Instance instance(problem);
  const SolveOptions options;
  SearchState state(instance, options);
  return RepairBelow(instance, state, Tower(problem), ceiling, {.windows = 4000, .patience = 1000}, 1, threads);
}

TEST(RepairBelowTest, BringsATowerDownToNearTheBound) {
  std::mt19937_64 source(7);
  for (int round = 0; round < 10; ++round) {
    const Problem problem = SomeProblem(80, source);
    const Bytes ceiling = LoadBound(problem) * 5 / 4;
    const auto offsets = Repaired(problem, ceiling, 2);
    ASSERT_TRUE(offsets.has_value()) << "round " << round;
    const Packing packing = PackingOf(problem, *offsets);
    EXPECT_LE(packing.height, ceiling);
    EXPECT_TRUE(CheckPacking(problem, packing).ok());
  }
}

TEST(RepairBelowTest, FindsNothingBelowTheOptimum) {
  std::mt19937_64 source(11);
  for (int round = 0; round < 5; ++round) {
    const Problem problem = SomeProblem(6, source);
    EXPECT_FALSE(Repaired(problem, BruteForceOptimum(problem) - 1, 1).has_value()) << "round " << round;
  }
}

TEST(RepairBelowTest, TheNumberOfThreadsDoesNotMatter) {
  std::mt19937_64 source(13);
  const Problem problem = SomeProblem(120, source);
  const Bytes ceiling = LoadBound(problem) * 5 / 4;
  const auto one = Repaired(problem, ceiling, 1);
  ASSERT_TRUE(one.has_value());
  EXPECT_EQ(one, Repaired(problem, ceiling, 3));
}

}  // namespace
}  // namespace stalloc::planner
