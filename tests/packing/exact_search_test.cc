#include "planner/packing/exact_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <random>
#include <vector>

#include "planner/packing/capacity_search.h"
#include "planner/packing/plan_check.h"
#include "planner/packing/portfolio.h"
#include "planner/packing/solver.h"
#include "tests/packing/naive.h"

namespace stalloc::planner {
namespace {

using Outcome = CapacitySearch::Outcome;
constexpr std::uint64_t kNoLimit = ~std::uint64_t{0} >> 1;
const auto kGoOn = [] { return false; };

std::vector<BlockIndex> Shuffled(std::size_t count, std::mt19937_64& random) {
  std::vector<BlockIndex> order(count);
  std::iota(order.begin(), order.end(), BlockIndex{0});
  std::shuffle(order.begin(), order.end(), random);
  return order;
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
    CapacitySearch search(instance);
    const std::vector<BlockIndex> ranking = Shuffled(instance.size(), random);
    ASSERT_EQ(search.Run(optimum, ranking, kNoLimit, kGoOn), Outcome::kFound) << "round " << round;
    ASSERT_TRUE(NaiveIsValid(problem, {search.offsets(), optimum})) << "round " << round;
    ASSERT_EQ(search.height(), optimum) << "round " << round;
    ASSERT_EQ(search.Run(optimum - 1, ranking, kNoLimit, kGoOn), Outcome::kInfeasible) << "round " << round;
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

TEST(CapacitySearchTest, SaysSoWhenTheNodeLimitEndsIt) {
  std::mt19937_64 random(64);
  const Problem problem = RandomProblem({.blocks = 60, .ticks = 40, .max_bytes = 999}, random);
  const Instance instance(problem);
  CapacitySearch search(instance);
  EXPECT_EQ(search.Run(instance.load_bound(), Shuffled(instance.size(), random), 10, kGoOn), Outcome::kLimit);
}

TEST(CapacitySearchTest, StopsWhenAsked) {
  std::mt19937_64 random(65);
  const Problem problem = RandomProblem({.blocks = 200, .ticks = 60, .max_bytes = 99999}, random);
  const Instance instance(problem);
  CapacitySearch search(instance);
  EXPECT_EQ(search.Run(instance.load_bound(), Shuffled(instance.size(), random), kNoLimit, [] { return true; }),
            Outcome::kLimit);
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
    for (const auto& solver : {MakeExactSearch(), MakePortfolio()}) {
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
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(100);
    const Packing exact = MakeExactSearch()->Solve(problem, {.deadline = deadline});
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
