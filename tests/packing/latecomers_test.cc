#include "planner/packing/latecomers.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

#include "planner/packing/load.h"

namespace stalloc::planner {
namespace {

constexpr Tick kOptimizer = 90;
constexpr CycleAxis kCycle{10, 100};
constexpr Bytes kGradient = 1000;

// Two gradients that stay from tick 20 and 25 on, two that go at once in the next micro-batch, then `late`, and what
// else is alive.
Problem Gradients(Block late, Bytes others = 0) {
  Problem problem;
  const auto add = [&](Tick begin, Tick end, Bytes bytes) {
    problem.blocks.push_back({.bytes = bytes, .life = {begin, end}});
  };
  add(20, kOptimizer, kGradient);
  add(25, kOptimizer, kGradient);
  add(40, 42, kGradient);
  add(45, 47, kGradient);
  if (others > 0) add(30, 35, others);
  add(60, 61, kGradient);
  problem.blocks.push_back(late);
  return problem;
}
constexpr Block kLate{.bytes = kGradient, .life = {50, kOptimizer}, .may_go = true};

// Where the last block begins then. The others stay as they are.
Tick BeginOfLast(Problem problem, Bytes least = 0) {
  const Problem before = problem;
  BeginLatecomersEarly(kCycle, least, LoadBound(problem), &problem);
  for (std::size_t i = 0; i + 1 < problem.blocks.size(); ++i) {
    EXPECT_EQ(problem.blocks[i].life, before.blocks[i].life) << i;
  }
  return problem.blocks.back().life.begin;
}

TEST(LatecomersTest, OneLivesFromTheFirstOfItsKindOn) { EXPECT_EQ(BeginOfLast(Gradients(kLate)), 20); }

TEST(LatecomersTest, NotWhereTheLoadWouldBeGreater) {
  EXPECT_EQ(BeginOfLast(Gradients(kLate, 999)), 20);
  EXPECT_EQ(BeginOfLast(Gradients(kLate, 1001)), 50);
}

TEST(LatecomersTest, OthersAreLeftAlone) {
  Block late = kLate;
  late.may_go = false;
  EXPECT_EQ(BeginOfLast(Gradients(late)), 50) << "none of its kind is known to come late";
  late = kLate;
  late.bytes = kGradient + 1;
  EXPECT_EQ(BeginOfLast(Gradients(late)), 50) << "there is none of its size";
  late = kLate;
  late.stream = 1;
  EXPECT_EQ(BeginOfLast(Gradients(late)), 50) << "nor of its stream";
  late = kLate;
  late.life.end = 70;
  EXPECT_EQ(BeginOfLast(Gradients(late)), 50) << "it goes long before those do that stay";
  EXPECT_EQ(BeginOfLast(Gradients(kLate), kGradient + 1), 50) << "too small";
  Problem nothing_goes = Gradients(kLate);
  for (const int i : {2, 3}) nothing_goes.blocks[static_cast<std::size_t>(i)].life.end = kOptimizer;
  EXPECT_EQ(BeginOfLast(nothing_goes), 50) << "the next of a row of gradients";
}

TEST(LatecomersTest, ThoseThatComeFirstHaveTheRoom) {
  Problem problem = Gradients(kLate, 1000 + kGradient / 2);
  problem.blocks.back().life.begin = 55;
  problem.blocks.insert(problem.blocks.end() - 1, kLate);
  BeginLatecomersEarly(kCycle, 0, 4 * kGradient + kGradient / 2, &problem);  // room for one
  EXPECT_EQ(problem.blocks[problem.blocks.size() - 2].life.begin, 20);
  EXPECT_EQ(problem.blocks[problem.blocks.size() - 1].life.begin, 55);
}

TEST(LoadTest, IsTheSumOfWhatIsAliveAtATick) {
  Problem problem;
  problem.blocks = {{.bytes = 3, .life = {0, 2}}, {.bytes = 5, .life = {1, 4}, .second_life = Lifetime{5, 6}}};
  EXPECT_EQ(LoadByTick(problem, 6), (std::vector<Bytes>{3, 8, 5, 5, 0, 5}));
}

}  // namespace
}  // namespace stalloc::planner
