#include "planner/packing/search/lower_bound.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "planner/packing/portfolio.h"
#include "planner/packing/search/size_first_fit.h"
#include "tests/packing/naive.h"

namespace stalloc::planner {
namespace {

// Tiny problems of all kinds.
Problem TinyProblem(int round, std::mt19937_64& random) {
  return RandomProblem({.blocks = 1 + round % 7,
                        .ticks = 7,
                        .max_bytes = 9,
                        .second_lives = round % 2 == 0,
                        .max_alignment = round % 3 == 0 ? Bytes{1} : Bytes{8}},
                       random);
}

TEST(HeightUnitTest, OptimalHeightsAreMultiplesOfIt) {
  std::mt19937_64 random(83);
  constexpr Bytes kAlignments[] = {1, 2, 3, 4, 6, 8, 9, 12};
  int above_one = 0;
  for (int round = 0; round < 200; ++round) {
    Problem problem = RandomProblem({.blocks = 1 + round % 6, .ticks = 6, .max_bytes = 5}, random);
    const Bytes scale = 1 + random() % 24;
    for (Block& block : problem.blocks) {
      block.bytes *= scale;
      block.alignment = kAlignments[random() % std::size(kAlignments)];
    }
    const Bytes unit = HeightUnit(problem);
    ASSERT_EQ(BruteForceOptimum(problem) % unit, 0u) << "round " << round;
    above_one += unit > 1 ? 1 : 0;
  }
  EXPECT_GT(above_one, 50);
}

// With few blocks searched, what is proved of them must hold for all.
void ExpectBoundsBelowOptima(const RelaxationLimits& limits, std::uint64_t seed, int least_raised) {
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  int above = 0;
  int raised = 0;
  for (int round = 0; round < 300; ++round) {
    const Problem problem = TinyProblem(round, random);
    const Instance instance(problem);
    const SolveOptions options;
    SearchState state(instance, options);
    Evaluator evaluator(instance, state, 1);
    SolveBySize(evaluator);
    const Bytes before = state.proved_bound();
    ProveByRelaxation(instance, state, limits);
    const Bytes optimum = BruteForceOptimum(problem);
    ASSERT_GE(state.proved_bound(), before);
    ASSERT_LE(state.proved_bound(), optimum) << "round " << round;
    above += optimum > before ? 1 : 0;
    raised += state.proved_bound() > before ? 1 : 0;
    if (limits.windows[0].beginnings >= problem.blocks.size()) {
      EXPECT_EQ(state.proved_bound(), optimum) << "round " << round;
    }
  }
  EXPECT_GE(raised, least_raised) << "of " << above;
}

TEST(ProveByRelaxationTest, OfAllBlocksItProvesTheOptimum) {
  ExpectBoundsBelowOptima({.peaks = 1, .windows = {{99, 99}}}, 84, 20);
}

TEST(ProveByRelaxationTest, OfSomeBlocksItProvesNothingThatIsWrong) {
  ExpectBoundsBelowOptima({.peaks = 2, .windows = {{1, 9}, {3, 9}, {5, 9}}}, 85, 5);
  ExpectBoundsBelowOptima({.peaks = 7, .windows = {{2, 4}, {4, 3}, {9, 5}}}, 86, 5);
}

TEST(ProveByRelaxationTest, StopsAtItsNodeLimit) {
  std::mt19937_64 random(87);
  const Problem problem = RandomProblem({.blocks = 3000, .ticks = 300, .max_bytes = 99999}, random);
  const Instance instance(problem);
  const SolveOptions options;
  SearchState state(instance, options);
  Evaluator evaluator(instance, state, 1);
  SolveBySize(evaluator);
  ProveByRelaxation(instance, state, {.nodes = 10});
  EXPECT_LE(state.proved_bound(), state.height());
}

// Blocks of which 6 units are alive at most, and no packing is lower than 7; found at random.
std::vector<Block> CoreAboveItsLoad(Tick at, Bytes unit) {
  std::vector<Block> core = {{.bytes = 1, .life = {4, 8}}, {.bytes = 3, .life = {1, 2}}, {.bytes = 2, .life = {2, 6}},
                             {.bytes = 4, .life = {6, 7}}, {.bytes = 2, .life = {1, 5}}, {.bytes = 3, .life = {5, 6}},
                             {.bytes = 1, .life = {7, 8}}, {.bytes = 2, .life = {2, 4}}};
  for (Block& block : core) {
    block.bytes *= unit;
    block.life = {at + block.life.begin, at + block.life.end};
  }
  return core;
}

TEST(ProveByRelaxationTest, TheCoreIsAboveItsLoadByBruteForce) {
  const Problem core{CoreAboveItsLoad(100, 1)};
  EXPECT_EQ(NaiveLoadBound(core), 6u);
  EXPECT_EQ(BruteForceOptimum(core), 7u);
}

constexpr Bytes kUnit = 1024;

// The core on a block that lives throughout, and among thousands of small ones: those alive with it live for one tick,
// so that they find room beside it.
Problem CoreAmongHarmless(Tick harmless) {
  std::mt19937_64 random(88);
  Problem problem;
  const Tick middle = harmless / 2;
  for (Tick tick = 0; tick < harmless; ++tick) {
    const Tick end = tick + 1 + static_cast<Tick>(random() % 50);
    const bool meets_core = tick < middle + 10 && middle < end;
    problem.blocks.push_back({.bytes = 1 + random() % 8, .life = {tick, meets_core ? tick + 1 : end}});
  }
  problem.blocks.push_back({.bytes = 100 * kUnit, .life = {0, 2 * harmless}});
  const std::vector<Block> core = CoreAboveItsLoad(middle, kUnit);
  problem.blocks.insert(problem.blocks.end(), core.begin(), core.end());
  for (std::size_t i = 0; i < problem.blocks.size(); ++i) problem.blocks[i].id = i;
  return problem;
}

TEST(ProveByRelaxationTest, ThePortfolioKnowsThatALargeInstanceIsOptimalAboveItsLoad) {
  const Problem problem = CoreAmongHarmless(5000);
  ASSERT_LT(NaiveLoadBound(problem), 107 * kUnit);
  for (const int threads : {1, 3}) {
    // No deadline: without the proof the search would go on for minutes.
    const Packing packing = MakePortfolio()->Solve(problem, {.threads = threads});
    EXPECT_TRUE(NaiveIsValid(problem, packing));
    EXPECT_EQ(packing.height, 107 * kUnit);
    EXPECT_EQ(packing.proved_bound, 107 * kUnit);
  }
}

}  // namespace
}  // namespace stalloc::planner
