#include "planner/analysis/lend_figures.h"

#include <gtest/gtest.h>

#include <string>

#include "planner/analysis/rank_planner.h"
#include "tests/analysis/trace_script.h"

namespace stalloc::planner {
namespace {

constexpr Bytes kFigureUnit = Bytes{1} << 20;
constexpr Bytes kPool = 20 * kFigureUnit;  // a segment of a pool that is known

DeviceReport ReportOf(const std::string& script, std::uint64_t live_before = 0) {
  Trace trace = TraceFromScript(InBytes(script));
  trace.live_before = live_before;
  RankPlannerOptions options;
  options.plan = false;
  RankPlanner planner(TakeTrace(trace).value(), options);
  EXPECT_TRUE(planner.Analyse().ok());
  return planner.Finish({}).report.devices.at(0);
}

LendFigures FiguresOf(const std::string& setup, const std::string& iteration) {
  return ReportOf(setup + " " + Repeat(iteration + " ", 5)).forecast->lending.value();
}

const std::string kDeadGraph = "+w=4M C0 +d=8M!1^0 -d C0-";

TEST(LendFiguresTest, WithoutACaptureThereAreNone) {
  EXPECT_FALSE(ReportOf("+w=4M " + Repeat("I +b=1M -b ", 5)).forecast->lending.has_value());
}

// 4 + 1 + 6 + 2 MiB beside the pool; t and u lie in it. Then b's is the peak, before the launch.
TEST(LendFiguresTest, WhatLiesInThePoolIsSaved) {
  const LendFigures found = FiguresOf(kDeadGraph, "I +b=1M R0 +t=6M +u=2M -t -u -b");
  EXPECT_EQ(found.pools, kPool);
  EXPECT_EQ(found.held_apart, kPool + 13 * kFigureUnit);
  EXPECT_EQ(found.held, kPool + 5 * kFigureUnit);
  EXPECT_EQ(found.saves(), 8 * kFigureUnit);
  EXPECT_EQ(found.cycle_saves(), 8 * kFigureUnit);
  EXPECT_EQ(found.requests, 2u);
  EXPECT_EQ(found.dead, 8 * kFigureUnit);
  EXPECT_EQ(found.carried, 0u);
  EXPECT_EQ(found.kept, 0u);
  EXPECT_EQ(found.unknown, 0u);
  EXPECT_EQ(found.limit, LendLimit::kLaunch);
}

TEST(LendFiguresTest, OwnMemoryInThePoolsPlaceIsHeld) {
  const LendFigures found = FiguresOf("+w=4M C0 +d=60M!1^0 -d C0-", "I R0 +t=40M +u=40M -t -u");
  EXPECT_EQ(found.held_apart, (60 + 84) * kFigureUnit);
  EXPECT_EQ(found.held, (60 + 20 + 4) * kFigureUnit);
  EXPECT_EQ(found.cycle_saves(), 60 * kFigureUnit);
  EXPECT_EQ(found.requests, 2u);
}

TEST(LendFiguresTest, NothingIsSavedWhereThePeakIsInALaunch) {
  const LendFigures found = FiguresOf(kDeadGraph, "I +b=9M R0 -b +t=6M -t");
  EXPECT_EQ(found.saves(), 0u);
  EXPECT_EQ(found.held, kPool + 13 * kFigureUnit);
  EXPECT_EQ(found.limit, LendLimit::kLaunch);
}

TEST(LendFiguresTest, NothingIsSavedWhereBytesWaitForALaunchAtThePeak) {
  const std::string setup = "+w=4M C0 +s=8M!1^0 C0- C1 -s +d=2M!1^8M -d +k=3M!1^12M C1-";
  const LendFigures found = FiguresOf(setup, "I +a=512 R0 +e=6M +f=512 -f -e +g=512 -g R1 -a");
  EXPECT_EQ(found.saves(), 0u);
  EXPECT_EQ(found.carried, 8 * kFigureUnit);
  EXPECT_EQ(found.dead, 2 * kFigureUnit);
  EXPECT_EQ(found.kept, 3 * kFigureUnit);
  EXPECT_EQ(found.limit, LendLimit::kCarried);
}

// Weights make the peak, and no block of it may lie elsewhere.
TEST(LendFiguresTest, FreeBytesThatNoBlockSuits) {
  const LendFigures found = FiguresOf(kDeadGraph, "I R0 +a=512 +b=100000 -b +c=512 -c -a");
  EXPECT_EQ(found.saves(), 0u);
  EXPECT_EQ(found.limit, LendLimit::kBlocks);
}

TEST(LendFiguresTest, BeforeTheCycleNothingIsLent) {
  const LendFigures found = FiguresOf(kDeadGraph + " I +x=40M -x", "I +b=1M R0 +t=6M +u=2M -t -u -b");
  EXPECT_EQ(found.held, 44 * kFigureUnit);
  EXPECT_EQ(found.saves(), 0u);
  EXPECT_EQ(found.cycle_saves(), 8 * kFigureUnit);
  EXPECT_EQ(found.cycle_held, kPool + 5 * kFigureUnit);
}

// The set-up's 24 MiB are gone when the graph is captured.
TEST(LendFiguresTest, PoolsAreHeldFromTheFirstCaptureOn) {
  const LendFigures found = FiguresOf("+x=24M -x " + kDeadGraph, "I +b=1M R0 +t=6M +u=2M -t -u -b");
  EXPECT_EQ(found.held_apart, kPool + 13 * kFigureUnit);
  const LendFigures late = FiguresOf("+w=4M +x=40M -x C0 +d=8M!1^0 -d C0-", "I +b=1M R0 +t=6M +u=2M -t -u -b");
  EXPECT_EQ(late.held_apart, 44 * kFigureUnit);
  EXPECT_EQ(late.saves(), 0u);
  EXPECT_EQ(late.cycle_saves(), 8 * kFigureUnit);
}

TEST(LendFiguresTest, WhyNothingMayBeLent) {
  const std::string iteration = "I +b=1M R0 +t=6M -t -b";
  EXPECT_EQ(FiguresOf("+w=4M C0 +k=8M!1^0 C0-", iteration).limit, LendLimit::kKept);
  EXPECT_EQ(FiguresOf("+w=4M C0 +k=8M!1^0 +d=512!1^8M -d C0-", iteration).limit, LendLimit::kKept);
  EXPECT_EQ(FiguresOf("+w=4M C0 C0-", iteration).limit, LendLimit::kKept) << "it has no pool";
  EXPECT_EQ(FiguresOf(kDeadGraph, "I +b=1M +t=6M -t -b").limit, LendLimit::kNoLaunch);
  EXPECT_EQ(FiguresOf(kDeadGraph, "I +b=1M (eval ) R0 +t=6M +y=512 (eval ) -y -t -b").limit, LendLimit::kFence);
  const DeviceReport late = ReportOf(kDeadGraph + " " + Repeat(iteration + " ", 5), 1);
  EXPECT_EQ(late.forecast->lending->limit, LendLimit::kLateTrace);
  const std::string carried = "+w=4M C0 +s=8M!1^0 C0- C1 -s C1- ";
  const std::string in_order = "I R0 R1 +o=6M -o ";
  const DeviceReport mixed = ReportOf(carried + Repeat(in_order, 3) + "I R1 R0 +o=6M -o " + in_order);
  EXPECT_EQ(mixed.forecast->lending->limit, LendLimit::kOrder);
}

// An older trace tells no addresses: the most that lived in the pool is what it holds.
TEST(LendFiguresTest, PoolsThatAreNotKnownAreCounted) {
  const LendFigures found = FiguresOf("+w=4M C0 +d=8M!1 -d C0- C1 +e=4M!2^0 -e C1-", "I +b=1M R0 +t=6M -t -b");
  EXPECT_EQ(found.unknown, 1u);
  EXPECT_EQ(found.pools, 8 * kFigureUnit + kPool);
  EXPECT_EQ(found.saves(), 0u);
  EXPECT_EQ(found.limit, LendLimit::kUnknownPools);
}

// The plan repeats iterations that came before.
TEST(LendFiguresTest, GraphsThatAreCapturedInTheLastIterations) {
  const std::string eager = "I +w=1M +t=6M -t -w ";
  const DeviceReport report = ReportOf("+p=4M " + Repeat(eager, 4) + "I C0 +d=8M!1^0 -d C0- R0 +w=1M -w I R0 +w=1M -w");
  EXPECT_EQ(report.graphs->last_segment, 5u);
  EXPECT_EQ(report.forecast->lending->limit, LendLimit::kCapturedLate);
  EXPECT_EQ(report.forecast->lending->saves(), 0u);
}

}  // namespace
}  // namespace stalloc::planner
