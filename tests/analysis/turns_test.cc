#include "planner/analysis/turns.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "planner/analysis/solve_timeline.h"
#include "planner/packing/problem/plan_check.h"
#include "tests/analysis/plan_fixture.h"
#include "tests/packing/naive.h"

namespace stalloc::planner {
namespace {

// A trace that may be laid out in any number of turns.
class Laid {
 public:
  explicit Laid(const std::string& script) : trace_(TraceFromScript(script)), device_(BuildLifetimes(trace_)->front()) {
    model_ = CompareIterations(device_, FindCycle(device_, CutAtMarks(trace_), trace_.complete).value());
  }

  [[nodiscard]] Timeline InTurns(std::uint32_t turns) const { return BuildTimeline(device_, model_, {}, turns); }
  [[nodiscard]] SolvedPacking Solve() const {
    PackingOptions options;
    options.work = WorkOfSeconds(0.1);
    return SolveTimeline(
        InTurns(1), MostCopies(model_), [this](std::uint32_t turns) { return InTurns(turns); }, options, *portfolio_);
  }
  [[nodiscard]] DevicePlan Plan(const SolvedPacking& solved) const {
    Timeline timeline = InTurns(solved.turns);
    Packing packing = solved.packing;
    if (solved.turns > 1) JoinTurns(&timeline, &packing);
    EXPECT_TRUE(CheckPacking(timeline.problem, packing).ok());
    DevicePlan plan = BuildDevicePlan(device_, timeline, packing);
    EXPECT_TRUE(ReplayTrace(device_, plan).ok());
    return plan;
  }

 private:
  const Trace trace_;
  const DeviceTrace device_;
  SteadyModel model_;
  std::unique_ptr<Solver> portfolio_ = MakePortfolio();
};

// The output of each iteration goes when the next one is there; the peak comes afterwards, in the backward pass.
std::string KeptOutputs(const std::string& beside_both = "", const std::string& afterwards = "") {
  std::string script = "+w=8192 ";
  for (int i = 0; i < 4; ++i) {
    absl::StrAppend(&script, "I +a=2048 +o", i, "=4096 ", beside_both, i > 0 ? absl::StrCat("-o", i - 1, " ") : "",
                    afterwards, "+g=4096 +h=2048 -a -g -h ");
  }
  return script;
}

TEST(TurnsTest, WhatLivesIntoTheNextIterationCostsNothingAtThePeak) {
  const Laid laid(KeptOutputs());
  const SolvedPacking solved = laid.Solve();
  EXPECT_EQ(solved.turns, 2u);
  EXPECT_EQ(solved.packing.height, 8192u + 2048 + 4096 + 4096 + 2048);
  EXPECT_EQ(solved.lower_bound, solved.packing.height);
  EXPECT_EQ(solved.one_place, solved.packing.height + 4096);
  const DevicePlan plan = laid.Plan(solved);
  EXPECT_EQ(plan.turns, 2u);
}

TEST(TurnsTest, OnlyWhatNeedsThemHasSeveralPlaces) {
  std::string ten;
  for (int i = 0; i < 10; ++i) absl::StrAppend(&ten, "+t", i, "=1024 ", i > 0 ? absl::StrCat("-t", i - 1, " ") : "");
  const Laid laid(KeptOutputs("", absl::StrCat(ten, "-t9 ")));
  const DevicePlan plan = laid.Plan(laid.Solve());
  ASSERT_EQ(plan.cycle.size(), 2u);
  int several = 0;
  for (std::size_t e = 0; e < plan.cycle[0].entries.size(); ++e) {
    several += plan.cycle[0].entries[e].slot != plan.cycle[1].entries[e].slot ? 1 : 0;
  }
  EXPECT_GE(several, 2);  // the output, and who lies in its other place
  EXPECT_LE(several, 5);
}

TEST(TurnsTest, PlacesGoRoundInMoreTurnsThanABlockOutlives) {
  const Laid laid(
      "I +b0=4096 +b1=6144 I +b2=4096 -b0 +b3=6144 I -b1 +b4=4096 -b2 +b5=6144 I -b3 +b6=4096 -b4 +b7=6144 "
      "I -b5 +b8=4096 -b6 +b9=6144 I -b7 +b10=4096 -b8 +b11=6144 ");
  const SolvedPacking solved = laid.Solve();
  EXPECT_GT(solved.turns, 2u);
  EXPECT_LT(solved.packing.height, BruteForceOptimum(laid.InTurns(2).problem));
  EXPECT_EQ(laid.Plan(solved).cycle.size(), solved.turns);
}

TEST(TurnsTest, WhereOnePlaceIsEnoughThereAreNoTurns) {
  // The peak is where both outputs are.
  const Laid laid(KeptOutputs("+x=8192 -x "));
  const SolvedPacking solved = laid.Solve();
  EXPECT_EQ(solved.turns, 1u);
  EXPECT_EQ(solved.packing.height, solved.lower_bound);
}

TEST(TurnsTest, WhereNothingCrossesTheyAreNotTried) {
  const Laid laid(Repeat("I +a=512 +b=1024 -a +c=512 +d=1024 -b -c -d ", 4));
  EXPECT_FALSE(CrossesIterations(laid.InTurns(1)));
  const SolvedPacking solved = laid.Solve();
  EXPECT_EQ(solved.turns, 1u);
  EXPECT_EQ(solved.one_place, solved.packing.height);
}

// A few requests an iteration that live up to two iterations.
std::string RandomCycle(std::mt19937& random) {
  struct Live {
    std::string name;
    std::uint64_t end;
  };
  const unsigned requests = 2 + random() % 3;
  std::vector<unsigned> sizes(requests);
  std::vector<unsigned> lives(requests);
  for (unsigned& size : sizes) size = 512 * (1 + random() % 12);
  for (unsigned& life : lives) life = 1 + random() % (2 * requests - 1);
  std::string script;
  std::vector<Live> live;
  for (std::uint64_t now = 0; now < 6 * requests; ++now) {
    if (now % requests == 0) script += "I ";
    std::erase_if(live, [&](const Live& block) {
      if (block.end > now) return false;
      absl::StrAppend(&script, "-", block.name, " ");
      return true;
    });
    live.push_back({absl::StrCat("b", now), now + lives[now % requests]});
    absl::StrAppend(&script, "+", live.back().name, "=", sizes[now % requests], " ");
  }
  return script;
}

TEST(TurnsTest, SmallCyclesAreAsLowAsBruteForceWithAPlaceForEachTurn) {
  std::mt19937 random(7);
  int compared = 0;
  int lower = 0;
  int more = 0;
  for (int round = 0; round < 200; ++round) {
    const std::string script = RandomCycle(random);
    SCOPED_TRACE(script);
    const Laid laid(script);
    const Timeline in_turns = laid.InTurns(2);
    if (in_turns.problem.blocks.size() > 8) continue;
    const SolvedPacking solved = laid.Solve();
    const Bytes two_turns = BruteForceOptimum(in_turns.problem);
    if (solved.turns > 2) {
      ASSERT_LT(solved.packing.height, two_turns);  // more turns than brute force can try
    } else {
      ASSERT_EQ(solved.packing.height, two_turns);
    }
    more += solved.turns > 2 ? 1 : 0;
    ASSERT_EQ(laid.Plan(solved).arena_bytes, solved.packing.height);
    ++compared;
    lower += solved.turns > 1 ? 1 : 0;
  }
  EXPECT_GT(compared, 50);
  EXPECT_GT(lower, 5);
  EXPECT_GT(more, 0);
}

}  // namespace
}  // namespace stalloc::planner
