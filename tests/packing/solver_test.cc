// What must hold for every solver.
#include "planner/packing/search/solver.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <random>
#include <string>
#include <thread>

#include "planner/packing/portfolio.h"
#include "planner/packing/problem/plan_check.h"
#include "tests/packing/naive.h"

namespace stalloc::planner {
namespace {

using Clock = std::chrono::steady_clock;

class SolverTest : public testing::TestWithParam<std::size_t> {
 protected:
  std::unique_ptr<Solver> solver_ = std::move(MakeAllSolvers()[GetParam()]);
};

std::vector<std::size_t> AllIndices() {
  std::vector<std::size_t> indices(MakeAllSolvers().size());
  for (std::size_t i = 0; i < indices.size(); ++i) indices[i] = i;
  return indices;
}

INSTANTIATE_TEST_SUITE_P(All, SolverTest, testing::ValuesIn(AllIndices()),
                         [](const testing::TestParamInfo<std::size_t>& param) {
                           return std::string(MakeAllSolvers()[param.param]->name());
                         });

TEST_P(SolverTest, PacksAnEmptyProblem) {
  const Packing packing = solver_->Solve({}, {});
  EXPECT_TRUE(packing.offsets.empty());
  EXPECT_EQ(packing.height, 0u);
}

TEST_P(SolverTest, PacksTinyProblemsValidlyAndNeverBelowTheOptimum) {
  constexpr std::uint64_t kSeed = 41;
  SCOPED_TRACE(kSeed);
  std::mt19937_64 random(kSeed);
  for (int round = 0; round < 60; ++round) {
    const Problem problem = RandomProblem({.blocks = 1 + round % 6,
                                           .second_lives = round % 2 == 0,
                                           .max_alignment = round % 3 == 0 ? Bytes{8} : Bytes{1}},
                                          random);
    const Packing packing = solver_->Solve(problem, {.seed = 1 + static_cast<std::uint64_t>(round)});
    ASSERT_TRUE(NaiveIsValid(problem, packing)) << "round " << round;
    ASSERT_TRUE(CheckPacking(problem, packing).ok()) << "round " << round;
    const Bytes optimum = BruteForceOptimum(problem);
    ASSERT_LE(LoadBound(problem), optimum) << "round " << round;
    ASSERT_GE(packing.height, optimum) << "round " << round;
  }
}

TEST_P(SolverTest, PacksMiddlingProblemsValidly) {
  constexpr std::uint64_t kSeed = 42;
  SCOPED_TRACE(kSeed);
  std::mt19937_64 random(kSeed);
  for (int round = 0; round < 6; ++round) {
    const Problem problem = RandomProblem({.blocks = 400,
                                           .ticks = 300,
                                           .max_bytes = 5000,
                                           .second_lives = round % 2 == 0,
                                           .max_alignment = round % 3 == 0 ? Bytes{64} : Bytes{1}},
                                          random);
    const Packing packing = solver_->Solve(problem, {.work = WorkOfSeconds(0.2)});
    ASSERT_TRUE(NaiveIsValid(problem, packing)) << "round " << round;
  }
}

TEST_P(SolverTest, ReportsEveryImprovementAndReturnsTheLast) {
  std::mt19937_64 random(43);
  const Problem problem = RandomProblem({.blocks = 300, .ticks = 200, .max_bytes = 999}, random);
  std::vector<Bytes> reported;
  SolveOptions options;
  options.work = WorkOfSeconds(0.2);
  options.threads = 2;
  options.on_progress = [&](Bytes height) { reported.push_back(height); };
  const Packing packing = solver_->Solve(problem, options);
  ASSERT_FALSE(reported.empty());
  for (std::size_t i = 1; i < reported.size(); ++i) EXPECT_LT(reported[i], reported[i - 1]);
  EXPECT_EQ(reported.back(), packing.height);
}

TEST_P(SolverTest, ReturnsAFirstPackingThoughItMayDoNothing) {
  std::mt19937_64 random(44);
  const Problem problem = RandomProblem({.blocks = 2000, .ticks = 3000, .max_bytes = 99999}, random);
  const Packing packing = solver_->Solve(problem, {.work = 0, .threads = 2});
  EXPECT_LT(packing.work, WorkOfSeconds(0.1)) << "one greedy pass, no search";
  EXPECT_TRUE(CheckPacking(problem, packing).ok());
}

// Keeps the machine busy while it lives.
class BusyLoops {
 public:
  BusyLoops() {
    for (std::jthread& thread : threads_) {
      thread = std::jthread([](const std::stop_token& ended) {
        while (!ended.stop_requested()) {
        }
      });
    }
  }

 private:
  std::array<std::jthread, 3> threads_;
};

// Budgets so small that they end every search somewhere, each at another place.
TEST_P(SolverTest, WorkEndsASearchAtOnePlaceUnderAnyLoadOnAnyNumberOfThreads) {
  std::mt19937_64 random(47);
  for (const int blocks : {300, 2100}) {
    const Problem problem = RandomProblem({.blocks = blocks, .ticks = 900, .max_bytes = 99999}, random);
    const Work first = solver_->Solve(problem, {.work = 0}).work;
    for (const Work more : {first / 2, 12 * first}) {
      SolveOptions options{.work = first + more, .seed = 3, .threads = 1};
      const Packing alone = solver_->Solve(problem, options);
      options.threads = 4;
      const BusyLoops load;
      const Packing together = solver_->Solve(problem, options);
      EXPECT_EQ(alone.offsets, together.offsets) << blocks << " blocks, " << more;
      EXPECT_EQ(alone.work, together.work) << blocks << " blocks, " << more;
      EXPECT_LE(alone.work, 2 * first + more + more / 4) << "what one order of all blocks takes may be more";
    }
  }
}

TEST_P(SolverTest, KeepsTheBestPackingWhenStopped) {
  std::mt19937_64 random(45);
  const Problem problem = RandomProblem({.blocks = 2000, .ticks = 3000, .max_bytes = 99999}, random);
  std::atomic<bool> stop{false};
  SolveOptions options;
  options.stop = &stop;
  Clock::time_point stopped;
  options.on_progress = [&](Bytes) {
    if (!stop.exchange(true)) stopped = Clock::now();
  };
  const Packing packing = solver_->Solve(problem, options);
  ASSERT_TRUE(stop);
  EXPECT_LT(Clock::now() - stopped, std::chrono::seconds(2));
  EXPECT_TRUE(CheckPacking(problem, packing).ok());
}

TEST_P(SolverTest, StopsAtTheCapacity) {
  std::mt19937_64 random(46);
  const Problem problem = RandomProblem({.blocks = 500, .ticks = 300, .max_bytes = 999}, random);
  SolveOptions options;
  options.capacity = 10 * LoadBound(problem);  // the first packing will do
  int reports = 0;
  options.on_progress = [&](Bytes) { ++reports; };
  const Packing packing = solver_->Solve(problem, options);
  EXPECT_LE(packing.height, *options.capacity);
  EXPECT_EQ(reports, 1);
}

}  // namespace
}  // namespace stalloc::planner
