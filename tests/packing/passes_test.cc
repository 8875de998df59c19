#include "planner/packing/problem/passes.h"

#include <gtest/gtest.h>

#include <random>

#include "planner/packing/portfolio.h"
#include "tests/packing/naive.h"

namespace stalloc::planner {
namespace {

TEST(PassesTest, EachCanBeLeftOut) {
  for (std::size_t i = 0; i < kPassNames.size(); ++i) {
    PackingPasses passes;
    passes.LeaveOut(static_cast<PackingPass>(i));
    for (std::size_t other = 0; other < kPassNames.size(); ++other) {
      EXPECT_EQ(passes.Have(static_cast<PackingPass>(other)), other != i);
    }
  }
}

// Small ones, which are searched exactly, and such as are not; some on another stream.
TEST(PassesTest, APackingIsValidWithoutAnyOfThemAndWithoutAll) {
  std::mt19937_64 random(54);
  for (const int blocks : {50, 2200}) {
    Problem problem = RandomProblem({.blocks = blocks, .ticks = 900, .max_bytes = 9999}, random);
    for (std::size_t i = 0; i < problem.blocks.size(); i += 7) problem.blocks[i].stream = 1;
    const Bytes bound = LoadBound(problem);
    PackingPasses none;
    for (std::size_t i = 0; i < kPassNames.size(); ++i) {
      PackingPasses passes;
      passes.LeaveOut(static_cast<PackingPass>(i));
      none.LeaveOut(static_cast<PackingPass>(i));
      const Packing packing = MakePortfolio()->Solve(problem, {.work = WorkOfSeconds(0.05), .passes = passes});
      EXPECT_TRUE(NaiveIsValid(problem, packing)) << kPassNames[i];
      EXPECT_GE(packing.height, bound) << kPassNames[i];
    }
    EXPECT_TRUE(NaiveIsValid(problem, MakePortfolio()->Solve(problem, {.work = WorkOfSeconds(0.05), .passes = none})));
  }
}

}  // namespace
}  // namespace stalloc::planner
