#include "planner/packing/time_decomposition.h"

#include <gtest/gtest.h>

#include "planner/packing/plan_check.h"
#include "planner/packing/problem.h"
#include "tests/packing/naive.h"

namespace stalloc::planner {
namespace {

constexpr Tick kLength = 1000;

// Random problems one after the other, and weights that outlive them all.
Problem RunOf(int iterations, int blocks, std::mt19937_64& random) {
  Problem run;
  for (int i = 0; i < iterations; ++i) {
    Problem one = RandomProblem({.blocks = blocks, .ticks = kLength - 1, .max_bytes = 5000}, random);
    for (Block& block : one.blocks) {
      block.id = run.blocks.size();
      block.life.begin += i * kLength;
      block.life.end += i * kLength;
      run.blocks.push_back(block);
    }
  }
  for (const Bytes bytes : {Bytes{70000}, Bytes{30000}}) {
    run.blocks.push_back({.id = run.blocks.size(), .bytes = bytes, .life = {.begin = 0, .end = iterations * kLength}});
  }
  return run;
}

TEST(TimeDecompositionTest, CutsBetweenIterations) {
  std::mt19937_64 random(3);
  const Problem run = RunOf(5, 300, random);
  const Instance instance(run);
  const std::vector<std::uint32_t> cuts = TimeCuts(instance, 250);
  ASSERT_EQ(cuts.size(), 4u);
  for (const std::uint32_t cut : cuts) {
    Bytes crossing = 0;
    for (const Item& item : instance.items()) crossing += item.span.begin < cut && cut < item.span.end ? item.bytes : 0;
    EXPECT_LE(crossing, 100000 + instance.load_bound() / 64);
  }
}

TEST(TimeDecompositionTest, PartsAreNeverSmallerThanAsked) {
  std::mt19937_64 random(4);
  const Problem run = RunOf(4, 300, random);
  EXPECT_EQ(TimeCuts(Instance(run), 650).size(), 0u) << "602 blocks would remain behind the first cut";
  const Problem single{.blocks = {run.blocks.front()}};
  EXPECT_TRUE(TimeCuts(Instance(single), 1).empty());
}

TEST(TimeDecompositionTest, PacksLongRunsTheSameOnAnyNumberOfThreads) {
  std::mt19937_64 random(5);
  const Problem run = RunOf(4, 2500, random);
  const Packing one = MakeTimeDecomposition()->Solve(run, {.threads = 1});
  const Packing two = MakeTimeDecomposition()->Solve(run, {.threads = 2});
  EXPECT_TRUE(CheckPacking(run, one).ok());
  EXPECT_EQ(one.offsets, two.offsets);
}

}  // namespace
}  // namespace stalloc::planner
