#include "planner/analysis/period.h"

#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <string>

#include "absl/strings/str_cat.h"
#include "planner/analysis/rank_planner.h"
#include "planner/analysis/traced_rank.h"
#include "planner/packing/portfolio.h"
#include "tests/analysis/trace_script.h"

namespace stalloc::planner {
namespace {

std::vector<Bytes> Numbers(Bytes first, std::size_t count) {
  std::vector<Bytes> found(count);
  std::iota(found.begin(), found.end(), first);
  return found;
}

std::vector<Bytes> Times(const std::vector<Bytes>& part, int times) {
  std::vector<Bytes> found;
  for (int i = 0; i < times; ++i) found.insert(found.end(), part.begin(), part.end());
  return found;
}

std::vector<Bytes> Joined(std::vector<Bytes> left, const std::vector<Bytes>& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

TEST(PeriodTest, MicroBatchesAreNoIterations) {
  const std::vector<Bytes> step = Joined(Times(Numbers(100, 40), 8), {7, 8, 9, 10, 11});
  EXPECT_EQ(FindPeriod(Joined({1, 2, 3}, Times(step, 4))), step.size());
}

TEST(PeriodTest, SizesThatVaryDoNotVote) {
  std::vector<Bytes> sizes;
  for (Bytes k = 0; k < 5; ++k) {
    sizes = Joined(Joined(sizes, Numbers(10, 8)), {1000 + 7 * k, 2000 + 3 * k * k});
  }
  EXPECT_EQ(FindPeriod(sizes), 10u);
}

TEST(PeriodTest, NothingRepeats) {
  EXPECT_EQ(FindPeriod(Numbers(0, 1000)), 0u);
  EXPECT_TRUE(FindPeriodCut(std::vector<Bytes>(30, 5), std::vector<Bytes>(30, 0)).begins.empty());
}

TEST(PeriodTest, CutsWhereLeastIsLive) {
  std::vector<Bytes> live(20, 9);
  live[4] = 1;
  EXPECT_EQ(FindPeriodCut(Times(Numbers(0, 20), 4), Times(live, 4)).begins, (std::vector<std::size_t>{4, 24, 44, 64}));
}

TEST(PeriodTest, WhatPilesUpIsNoIteration) {
  std::vector<Bytes> live(60);
  std::iota(live.begin(), live.end(), Bytes{0});
  const PeriodCut found = FindPeriodCut(Times(Numbers(1, 20), 3), live);
  EXPECT_TRUE(found.begins.empty());
  ASSERT_TRUE(found.pile.has_value());
  EXPECT_EQ(found.pile->requests, 20u);
  EXPECT_EQ(found.pile->bytes, 20);
}

// Ten blocks, all freed at its end; "F0" and "O" where they are wanted.
std::string Iteration(bool marked) {
  std::string text = marked ? "I F0 " : "F0 ";
  for (int i = 0; i < 10; ++i) absl::StrAppend(&text, "+b", i, "=", 1024 * (i + 1), " ");
  absl::StrAppend(&text, "O ");
  for (int i = 0; i < 10; ++i) absl::StrAppend(&text, "-b", i, " ");
  return text;
}

TracedRank Traced(const std::string& script, const std::string& mode = "trace") {
  Trace trace = TraceFromScript(script);
  trace.fingerprint.trace_mode = mode;
  return *TakeTrace(trace);
}

TEST(CutByPeriodTest, ARunWithoutMarksHasTheIterationsThatMarksWouldTell) {
  const TracedRank marked = Traced("+w=4096 " + Repeat(Iteration(true), 5));
  const TracedRank bare = Traced("+w=4096 " + Repeat(Iteration(false), 5));
  EXPECT_EQ(bare.segmentation.census.by_period, 5u);
  ASSERT_EQ(bare.segmentation.segments.size(), marked.segmentation.segments.size());
  const DeviceTrace& device = bare.devices[0];
  for (std::size_t i = 0; i < device.allocations.size(); ++i) {
    const Allocation& one = device.allocations[i];
    const Allocation& other = marked.devices[0].allocations[i];
    EXPECT_EQ(one.segment, other.segment) << i;
    EXPECT_EQ(one.ordinal, other.ordinal) << i;
    EXPECT_EQ(one.freed(), other.freed()) << i;
    if (one.segment == 0 || one.segment == 5) continue;  // frees come before the next mark, or after the next request
    EXPECT_EQ(one.free_segment, other.free_segment) << i;
    EXPECT_EQ(one.free_ordinal, other.free_ordinal) << i;
  }
  EXPECT_EQ(device.segments[2].phases.back().first_entry, 10u) << "the optimizer comes behind the last request";
}

TEST(CutByPeriodTest, ItIsPlannedAndSaysHowIterationsWereFound) {
  const std::string bare = "+w=4096 " + Repeat(Iteration(false), 5);
  const auto plan_of = [](const std::string& script) {
    const std::unique_ptr<Solver> solver = MakePortfolio();
    return PlanRank(TraceFromScript(script), {}, *solver);
  };
  const auto planned = plan_of(bare);
  ASSERT_TRUE(planned.ok()) << planned.status();
  ASSERT_TRUE(planned->plan.has_value()) << planned->plan_status;
  const auto marked = plan_of("+w=4096 " + Repeat(Iteration(true), 5));
  EXPECT_EQ(planned->plan->devices[0].arena_bytes, marked->plan->devices[0].arena_bytes);
  EXPECT_NE(planned->report.warnings.at(0).find("the period of the requests shows 5 iterations"), std::string::npos);
}

TEST(CutByPeriodTest, MarksAndSnapshotsAreLeftAsTheyAre) {
  EXPECT_EQ(Traced("+w=4096 " + Repeat(Iteration(true), 5)).segmentation.census.by_period, 0u);
  EXPECT_EQ(Traced("+w=4096 " + Repeat(Iteration(false), 5), "snapshot").segmentation.iterations(), 0u);
  EXPECT_EQ(Traced("+w=4096 -w").segmentation.iterations(), 0u);
}

}  // namespace
}  // namespace stalloc::planner
