#include "planner/packing/problem/problem.h"

#include <gtest/gtest.h>

#include <random>

#include "planner/packing/problem/instance.h"
#include "tests/packing/naive.h"

namespace stalloc::planner {
namespace {

TEST(LoadBoundTest, AnEmptyProblemNeedsNothing) { EXPECT_EQ(LoadBound({}), 0u); }

TEST(LoadBoundTest, ABlockThatEndsWhereAnotherBeginsDoesNotAddToIt) {
  const Problem problem{{{.id = 0, .bytes = 8, .life = {0, 5}}, {.id = 1, .bytes = 6, .life = {5, 9}}}};
  EXPECT_EQ(LoadBound(problem), 8u);
}

TEST(LoadBoundTest, CountsTheSecondLifetime) {
  const Problem problem{
      {{.id = 0, .bytes = 8, .life = {8, 10}, .second_life = Lifetime{0, 2}}, {.id = 1, .bytes = 6, .life = {1, 4}}}};
  EXPECT_EQ(LoadBound(problem), 14u);
}

TEST(LoadBoundTest, AgreesWithTheNaiveSumOnRandomProblems) {
  constexpr std::uint64_t kSeed = 11;
  SCOPED_TRACE(kSeed);
  std::mt19937_64 random(kSeed);
  for (int round = 0; round < 500; ++round) {
    const Problem problem =
        RandomProblem({.blocks = 1 + round % 40, .ticks = 30, .second_lives = round % 2 == 0}, random);
    ASSERT_EQ(LoadBound(problem), NaiveLoadBound(problem)) << "round " << round;
    ASSERT_EQ(Instance(problem).load_bound(), NaiveLoadBound(problem)) << "round " << round;
  }
}

bool Conflict(const Item& a, const Item& b) {
  return a.span.Intersects(b.span) || a.second.Intersects(b.second) || a.span.Intersects(b.second) ||
         a.second.Intersects(b.span);
}

TEST(InstanceTest, PositionsKeepEveryConflictAndAddNone) {
  constexpr std::uint64_t kSeed = 12;
  SCOPED_TRACE(kSeed);
  std::mt19937_64 random(kSeed);
  for (int round = 0; round < 200; ++round) {
    const Problem problem = RandomProblem({.blocks = 25, .ticks = 40, .second_lives = round % 2 == 0}, random);
    const Instance instance(problem);
    for (BlockIndex a = 0; a < instance.size(); ++a) {
      for (BlockIndex b = 0; b < a; ++b) {
        ASSERT_EQ(Conflict(instance[a], instance[b]), NaiveConflict(problem.blocks[a], problem.blocks[b]))
            << "round " << round << " blocks " << a << " and " << b;
      }
    }
  }
}

TEST(InstanceTest, TheLoadOverPositionsPeaksAtTheBound) {
  std::mt19937_64 random(13);
  const Problem problem = RandomProblem({.blocks = 200, .ticks = 300, .second_lives = true}, random);
  const Instance instance(problem);
  const std::vector<Bytes> load = instance.Load();
  ASSERT_EQ(load.size(), instance.positions());
  EXPECT_EQ(*std::max_element(load.begin(), load.end()), NaiveLoadBound(problem));
}

}  // namespace
}  // namespace stalloc::planner
