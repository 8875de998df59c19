#include "planner/packing/finish/state_space.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "planner/packing/search/size_first_fit.h"
#include "tests/packing/naive.h"

namespace stalloc::planner {
namespace {

constexpr Tick kFirstEnds = 30;  // the first iteration's, and where the cycle begins
constexpr CycleAxis kLongCycle{kFirstEnds, 60};

// Iterations of equal requests but for state, which comes at the end of the first one, and some that only it has.
struct Iterations {
  Problem problem;
  std::vector<std::uint32_t> twins;
};

Iterations RandomIterations(std::mt19937_64& random) {
  Iterations run;
  const auto add = [&](const Block& block, std::uint32_t twin) {
    run.problem.blocks.push_back(block);
    run.twins.push_back(twin);
  };
  for (std::uint32_t i = 0; i < 40; ++i) {
    const auto begin = static_cast<Tick>(random() % 24);
    const Tick end = begin + 1 + static_cast<Tick>(random() % 5);
    const Bytes bytes = 64 + random() % 1000;
    add({.bytes = bytes, .life = {kFirstEnds + begin, kFirstEnds + end}}, kNoTwin);
    add({.bytes = bytes, .life = {begin, end}}, 2 * i);
  }
  for (Tick i = 0; i < 6; ++i) {
    add({.bytes = 64 + random() % 500, .life = {24 + i, kLongCycle.end}, .persistent = true}, kNoTwin);
    add({.bytes = 64 + random() % 100, .life = {3 * i, 3 * i + 2}}, kNoTwin);
  }
  return run;
}

bool BeginsWithTheAxis(const Block& block) { return !block.persistent || block.life.begin == 0; }

TEST(StateSpaceTest, StateHasItsPlacesFromTheBeginningOnAndThePackingHoldsAtTheSameHeight) {
  std::mt19937_64 random(7);
  int kept = 0;
  int moved = 0;
  for (int round = 0; round < 100; ++round) {
    Iterations run = RandomIterations(random);
    const Packing before = MakeSizeFirstFit()->Solve(run.problem, {});
    Packing after = before;
    Problem early = run.problem;
    KeepStateSpace(kLongCycle, run.twins, &early, &after);
    ASSERT_TRUE(NaiveIsValid(early, after)) << "round " << round;
    ASSERT_EQ(after.height, before.height);
    for (std::size_t i = 0; i < early.blocks.size(); ++i) {
      if (early.blocks[i].life.end > kLongCycle.begin) {
        ASSERT_EQ(after.offsets[i], before.offsets[i]);
      }
    }
    kept += std::ranges::all_of(early.blocks, BeginsWithTheAxis);
    moved += after.offsets != before.offsets;
  }
  EXPECT_GT(kept, 50);
  EXPECT_GT(moved, 50);
}

TEST(StateSpaceTest, StateThatWouldRaiseTheHeightStaysAsItIs) {
  // The first iteration is the peak, and full: without state, as it happens.
  Problem problem;
  problem.blocks.push_back({.bytes = 300, .life = {0, 10}});
  problem.blocks.push_back({.bytes = 200, .life = {10, 60}, .persistent = true});
  problem.blocks.push_back({.bytes = 100, .life = {40, 50}});
  Packing packing{.offsets = {0, 100, 0}, .height = 300};
  const std::vector<std::uint32_t> twins(3, kNoTwin);
  KeepStateSpace({30, 60}, twins, &problem, &packing);
  EXPECT_EQ(problem.blocks[1].life, (Lifetime{10, 60}));
  EXPECT_EQ(packing.offsets, (std::vector<Offset>{0, 100, 0}));
}

TEST(StateSpaceTest, WhatComesFirstIsKeptFirstAndOnlyWhatFits) {
  Problem problem;
  problem.blocks.push_back({.bytes = 100, .life = {0, 10}});
  problem.blocks.push_back({.bytes = 50, .life = {12, 60}, .persistent = true});
  problem.blocks.push_back({.bytes = 80, .life = {15, 60}, .persistent = true});
  problem.blocks.push_back({.bytes = 20, .life = {20, 60}, .persistent = true});
  BeginStateEarly(60, 180, &problem);
  EXPECT_EQ(problem.blocks[1].life.begin, 0);
  EXPECT_EQ(problem.blocks[2].life.begin, 15);
  EXPECT_EQ(problem.blocks[3].life.begin, 0);
}

}  // namespace
}  // namespace stalloc::planner
