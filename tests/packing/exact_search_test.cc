#include "planner/packing/search/exact_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <random>
#include <vector>

#include "planner/packing/portfolio.h"
#include "planner/packing/problem/plan_check.h"
#include "planner/packing/search/capacity_race.h"
#include "planner/packing/search/capacity_search.h"
#include "planner/packing/search/solver.h"
#include "tests/packing/naive.h"
#include "tests/packing/named_solver.h"

namespace stalloc::planner {
namespace {

using Outcome = CapacitySearch::Outcome;
const CapacitySearch::Limits kNoLimits{.nodes = ~std::uint64_t{0}};
const CapacitySearch::Limits kStopAtOnce{.nodes = ~std::uint64_t{0}, .should_stop = [] { return true; }};

// Keys at random: any order must do.
Ranking RandomRanking(std::size_t count, std::mt19937_64& random) {
  Ranking ranking{std::vector<RankingKey>(count), random() % 4, random() % 2 == 0, random() % 2 == 0};
  for (RankingKey& key : ranking.keys) {
    for (double& part : key) part = static_cast<double>(random() % 4);
  }
  return ranking;
}

// Any ranking must decide a capacity as brute force does: below the optimum nothing fits, at the optimum something
// does.
void ExpectBruteForceAnswers(RandomProblemShape shape, std::uint64_t seed) {
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  int above_load = 0;
  for (int round = 0; round < 250; ++round) {
    shape.blocks = 1 + round % 7;
    const Problem problem = RandomProblem(shape, random);
    const Instance instance(problem);
    const Bytes optimum = BruteForceOptimum(problem);
    above_load += optimum > instance.load_bound() ? 1 : 0;
    const SearchBlocks blocks(instance);
    CapacitySearch search(blocks);
    for (int again = 0; again < 2; ++again) {  // the second time it remembers
      const Ranking ranking = RandomRanking(blocks.size(), random);
      ASSERT_EQ(search.Run(optimum, ranking, kNoLimits), Outcome::kFound) << "round " << round;
      ASSERT_TRUE(NaiveIsValid(problem, {search.offsets(), optimum})) << "round " << round;
      ASSERT_EQ(search.Run(optimum - 1, ranking, kNoLimits), Outcome::kInfeasible) << "round " << round;
    }
  }
  // So few blocks with one lifetime and no alignment always reach the load bound.
  const bool proofs = shape.second_lives || shape.max_alignment > 1;
  EXPECT_EQ(above_load > 0, proofs) << "the rounds must see proofs beyond the load bound";
}

TEST(CapacitySearchTest, DecidesTinyProblemsAsBruteForceDoes) {
  ExpectBruteForceAnswers({.ticks = 7, .max_bytes = 9}, 61);
}

TEST(CapacitySearchTest, DecidesTinyProblemsWithTwoLifetimes) {
  ExpectBruteForceAnswers({.ticks = 9, .max_bytes = 9, .second_lives = true}, 62);
}

TEST(CapacitySearchTest, DecidesTinyProblemsWithAlignment) {
  ExpectBruteForceAnswers({.ticks = 7, .max_bytes = 9, .second_lives = true, .max_alignment = 8}, 63);
}

TEST(CapacitySearchTest, DecidesTinyProblemsWithManyEqualBlocks) {
  ExpectBruteForceAnswers({.ticks = 3, .max_bytes = 3, .second_lives = true}, 68);
}

TEST(CapacitySearchTest, SaysSoWhenTheNodeLimitEndsIt) {
  std::mt19937_64 random(64);
  const Problem problem = RandomProblem({.blocks = 60, .ticks = 40, .max_bytes = 999}, random);
  const Instance instance(problem);
  const SearchBlocks blocks(instance);
  CapacitySearch search(blocks);
  EXPECT_EQ(search.Run(instance.load_bound(), RandomRanking(blocks.size(), random), {.nodes = 10}), Outcome::kLimit);
}

TEST(CapacitySearchTest, StopsWhenAsked) {
  std::mt19937_64 random(65);
  const Problem problem = RandomProblem({.blocks = 200, .ticks = 60, .max_bytes = 99999}, random);
  const Instance instance(problem);
  const SearchBlocks blocks(instance);
  CapacitySearch search(blocks);
  EXPECT_EQ(search.Run(instance.load_bound(), RandomRanking(blocks.size(), random), kStopAtOnce), Outcome::kLimit);
  const CapacitySearch::Limits little{.nodes = ~std::uint64_t{0}, .work = 1};
  EXPECT_EQ(search.Run(instance.load_bound(), RandomRanking(blocks.size(), random), little), Outcome::kLimit);
}

TEST(ExactSearchTest, FindsAndProvesTheOptimumOfTinyProblems) {
  constexpr std::uint64_t kSeed = 66;
  SCOPED_TRACE(kSeed);
  std::mt19937_64 random(kSeed);
  for (int round = 0; round < 200; ++round) {
    const Problem problem = RandomProblem({.blocks = 1 + round % 7,
                                           .ticks = 7,
                                           .max_bytes = 9,
                                           .second_lives = round % 2 == 0,
                                           .max_alignment = round % 3 == 0 ? Bytes{8} : Bytes{1}},
                                          random);
    const Bytes optimum = BruteForceOptimum(problem);
    for (const auto& solver : {NamedSolver("exact_search"), MakePortfolio()}) {
      const Packing packing = solver->Solve(problem, {.threads = 1 + round % 3});
      ASSERT_TRUE(NaiveIsValid(problem, packing)) << "round " << round;
      ASSERT_EQ(packing.height, optimum) << "round " << round;
      ASSERT_EQ(packing.proved_bound, optimum) << "round " << round;
    }
  }
}

TEST(ExactSearchTest, NeverClaimsABoundAboveAKnownPacking) {
  constexpr std::uint64_t kSeed = 67;
  SCOPED_TRACE(kSeed);
  std::mt19937_64 random(kSeed);
  for (int round = 0; round < 20; ++round) {
    const Problem problem =
        RandomProblem({.blocks = 14, .ticks = 12, .max_bytes = 40, .second_lives = round % 2 == 0}, random);
    const Packing exact = NamedSolver("exact_search")->Solve(problem, {.work = WorkOfSeconds(0.1)});
    ASSERT_TRUE(NaiveIsValid(problem, exact));
    EXPECT_LE(exact.proved_bound, exact.height);
    EXPECT_GE(exact.proved_bound, NaiveLoadBound(problem));
    // Random orders may not go below it.
    for (int trial = 0; trial < 200; ++trial) {
      std::vector<std::size_t> order(problem.blocks.size());
      std::iota(order.begin(), order.end(), std::size_t{0});
      std::shuffle(order.begin(), order.end(), random);
      std::vector<Offset> offsets(order.size());
      Bytes height = 0;
      for (std::size_t i = 0; i < order.size(); ++i) {
        offsets[order[i]] = NaiveLowestFit(problem, offsets, {order.data(), i}, order[i], 0);
        height = std::max(height, offsets[order[i]] + problem.blocks[order[i]].bytes);
      }
      ASSERT_GE(height, exact.proved_bound) << "round " << round;
    }
  }
}

}  // namespace
}  // namespace stalloc::planner
