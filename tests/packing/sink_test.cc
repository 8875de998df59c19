#include "planner/packing/finish/sink.h"

#include <gtest/gtest.h>

#include <random>

#include "planner/packing/search/size_first_fit.h"
#include "tests/packing/naive.h"

namespace stalloc::planner {
namespace {

constexpr Tick kTicks = 60;

// Some blocks are alive all the time, at random places among the others.
Problem WithResidents(int round, std::mt19937_64& random) {
  Problem problem = RandomProblem(
      {.blocks = 80, .ticks = kTicks, .max_bytes = 2000, .second_lives = round % 2 == 0, .max_alignment = 1}, random);
  for (Block& block : problem.blocks) {
    block.bytes *= 64;
    block.alignment = round % 3 == 0 ? 64 : 1;
    if (random() % 5 == 0) {
      block.life = {0, kTicks + 1};
      block.second_life.reset();
    }
  }
  return problem;
}

TEST(SinkTest, WhatIsAliveAllTheTimeLiesAtTheBottomOfAPackingThatHolds) {
  std::mt19937_64 random(17);
  int moved = 0;
  for (int round = 0; round < 60; ++round) {
    const Problem problem = WithResidents(round, random);
    const Packing before = MakeSizeFirstFit()->Solve(problem, {});
    Packing after = before;
    SinkResidents(problem, &after);
    ASSERT_TRUE(NaiveIsValid(problem, after)) << "round " << round;
    ASSERT_EQ(after.height, before.height);
    Bytes residents = 0;
    for (const Block& block : problem.blocks) residents += block.life == Lifetime{0, kTicks + 1} ? block.bytes : 0;
    for (std::size_t i = 0; i < problem.blocks.size(); ++i) {
      const Block& block = problem.blocks[i];
      if (block.life == Lifetime{0, kTicks + 1}) {
        ASSERT_LE(after.offsets[i] + block.bytes, residents);
      } else {
        ASSERT_GE(after.offsets[i], residents);
      }
    }
    moved += after.offsets != before.offsets;
  }
  EXPECT_GT(moved, 30);
}

TEST(SinkTest, NothingMovesWhereASizeWouldBreakAnAlignment) {
  Problem problem;
  problem.blocks.push_back({.bytes = 100, .life = {0, 10}});
  problem.blocks.push_back({.bytes = 64, .life = {2, 10}, .alignment = 64});
  Packing packing{.offsets = {64, 0}, .height = 164};
  SinkResidents(problem, &packing);
  EXPECT_EQ(packing.offsets, (std::vector<Offset>{64, 0}));
  problem.blocks[0].bytes = 128;
  packing = {.offsets = {64, 0}, .height = 192};
  SinkResidents(problem, &packing);
  EXPECT_EQ(packing.offsets, (std::vector<Offset>{0, 128}));
}

TEST(SinkTest, AnEmptyProblemStaysEmpty) {
  Packing packing;
  SinkResidents({}, &packing);
  EXPECT_TRUE(packing.offsets.empty());
}

}  // namespace
}  // namespace stalloc::planner
