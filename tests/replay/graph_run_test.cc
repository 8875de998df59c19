// What runs with captured graphs hold by their own plans. Recorded on an H200 (torch 2.11): a training step that is
// captured after six eager ones, with evaluations before and after (captured_step.trace); a language model whose blocks
// are captured, with evaluations of other lengths, not captured, before every fifth step (graphed_blocks.trace);
// Megatron-LM with two graphs for each layer, captured in the end of its first iteration, before the optimizer's first
// step (megatron_local.trace).
#include "bench/replay/graph_run.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "planner/analysis/graph_needs.h"
#include "planner/analysis/rank_planner.h"
#include "planner/packing/portfolio.h"
#include "planner/trial/slot_trial.h"
#include "proto/codec/trace_reader.h"

namespace stalloc::bench {
namespace {

class GraphRunTest : public testing::Test {
 protected:
  void Read(const std::string& name) {
    const char* const root = std::getenv("STALLOC_SOURCE_DIR");
    ASSERT_NE(root, nullptr);
    trace_ = ReadTrace(std::string(root) + "/bench/corpus/" + name).value();
    const planner::TracedRank traced = planner::TakeTrace(trace_).value();
    needed_ = planner::FindGraphNeeds(traced, traced.devices.at(0)).peak;
  }

  [[nodiscard]] GraphRun Replay(bool lends, Bytes keep_free, std::uint32_t last = 2) const {
    const planner::SlotTrial trial;
    planner::RankPlannerOptions options;
    options.slot_judge = &trial;
    options.lend_graphs = lends;
    const auto solver = planner::MakePortfolio();
    const planner::RankResult planned = planner::PlanRank(trace_, options, *solver).value();
    return ReplayGraphs(trace_, planned.plan->devices.at(0), {.keep_free = keep_free, .last = last, .times = 6})
        .value();
  }
  void Print(const GraphRun& run) const {
    std::printf("held: %llu MiB, needed: %llu\n", static_cast<unsigned long long>(run.peak.sum() / kMiB),
                static_cast<unsigned long long>(needed_ / kMiB));
  }
  [[nodiscard]] double Efficiency(const GraphRun& run) const {
    return static_cast<double>(needed_) / static_cast<double>(run.peak.sum());
  }

  static constexpr Bytes kFullCard = Bytes{1} << 40;
  Trace trace_;
  Bytes needed_ = 0;
};

TEST_F(GraphRunTest, EvaluationsLieInThePoolOfTheCapturedStep) {
  Read("captured_step.trace");
  for (const Bytes keep_free : {kFullCard, FreeMemory::kDefaultKeep}) {
    const GraphRun run = Replay(/*lends=*/true, keep_free);
    Print(run);
    EXPECT_GT(Efficiency(run), keep_free == kFullCard ? 0.94 : 0.91);
    EXPECT_EQ(run.stats.graphs.hits, 35u) << "five of each evaluation";
    EXPECT_EQ(run.stats.graphs.surprises, 0u);
    EXPECT_EQ(run.refused, 0u);
    EXPECT_EQ(run.stats.dynamic_hits, 0u) << "all is planned";
    EXPECT_FALSE(run.stats.gave_up);
  }
}

// The plan has no evaluation: its blocks lie where steps need nothing then, and the step after it has its own places.
TEST_F(GraphRunTest, AnEvaluationThatIsNotPlannedNeedsNoMoreThanTheSteps) {
  Read("graphed_blocks.trace");
  const GraphRun run = Replay(/*lends=*/true, kFullCard, /*last=*/1);
  Print(run);
  EXPECT_GT(Efficiency(run), 0.99);
  EXPECT_EQ(run.refused, 0u);
  EXPECT_FALSE(run.stats.gave_up);
}

TEST_F(GraphRunTest, TheFirstStepAfterTheCapturesLiesInThePool) {
  Read("megatron_local.trace");
  const GraphRun run = Replay(/*lends=*/true, kFullCard);
  Print(run);
  EXPECT_GT(Efficiency(run), 0.98);
  EXPECT_EQ(run.stats.graphs.surprises, 0u);
  EXPECT_EQ(run.refused, 0u);
  EXPECT_FALSE(run.stats.gave_up);
  EXPECT_GT(Efficiency(Replay(/*lends=*/true, FreeMemory::kDefaultKeep)), 0.96);
}

TEST_F(GraphRunTest, APlanThatLendsNothingHoldsMore) {
  Read("captured_step.trace");
  EXPECT_LT(Efficiency(Replay(/*lends=*/false, kFullCard)), Efficiency(Replay(/*lends=*/true, kFullCard)) - 0.02);
}

TEST_F(GraphRunTest, WhatIsNotKnownOfAPoolIsAnError) {
  Read("captured_step.trace");
  for (TraceEvent& event : trace_.events) event.address = 0;
  const absl::StatusOr<GraphRun> run = ReplayGraphs(trace_, DevicePlan(), {});
  EXPECT_EQ(run.status().message(), "pool 1 has a request without an address");
}

}  // namespace
}  // namespace stalloc::bench
