#include "planner/trial/trial_run.h"

#include <gtest/gtest.h>

#include "planner/analysis/rank_planner.h"
#include "planner/packing/portfolio.h"
#include "planner/trial/slot_trial.h"
#include "planner/trial/without_lent.h"
#include "tests/analysis/trace_script.h"

namespace stalloc::planner {
namespace {

struct Planned {
  TracedRank traced;
  DevicePlan plan;

  // All segments but those of `left_out`.
  [[nodiscard]] TrialRun Serve(const std::vector<std::size_t>& left_out = {}) const {
    std::vector<bool> served(traced.devices[0].segments.size(), true);
    for (const std::size_t segment : left_out) served[segment] = false;
    return ServeTraced(traced, traced.devices[0], plan, served);
  }
};

Planned PlanOf(const std::string& script) {
  const Trace trace = TraceFromScript(script);
  RankPlannerOptions options;
  options.packing.work = WorkOfSeconds(0.1);
  const auto solver = MakePortfolio();
  RankResult result = PlanRank(trace, options, *solver).value();
  return {TakeTrace(trace).value(), std::move(result.plan.value().devices[0])};
}

// Sizes in MiB.
std::string Mib(int count) { return std::to_string(count * static_cast<long>(kMiB)); }

TEST(TrialRunTest, AStaticRunIsServedFromItsSlots) {
  const Planned planned = PlanOf("+w=" + Mib(8) + " " + Repeat("I +a=" + Mib(4) + " +b=" + Mib(2) + " -a -b ", 3));
  const TrialRun run = planned.Serve();
  EXPECT_EQ(run.requests, 7u);
  EXPECT_EQ(run.slot_hits, 7u);
  EXPECT_EQ(run.dynamic_hits, 0u);
  EXPECT_EQ(run.peak_live_bytes, 14 * kMiB);
  EXPECT_EQ(run.arena_bytes, 14 * kMiB);
  EXPECT_EQ(run.upstream_peak_bytes, 0u);
}

TEST(TrialRunTest, WhatVariesLiesInTheRoomOfTheSlots) {
  // d is alive while a is not.
  const auto iteration = [](int d) { return "I +a=" + Mib(16) + " -a +d=" + Mib(d) + " +c=" + Mib(1) + " -d -c "; };
  const Planned planned = PlanOf(iteration(4) + iteration(12) + iteration(7));
  const TrialRun run = planned.Serve();
  EXPECT_EQ(planned.plan.arena_bytes, 16 * kMiB);
  EXPECT_EQ(run.arena_bytes, 16 * kMiB);
  EXPECT_EQ(run.slot_hits, 6u);
  EXPECT_EQ(run.dynamic_hits, 3u);
}

TEST(TrialRunTest, TheArenaGrowsForWhatFitsNowhere) {
  const auto iteration = [](int d) { return "I +a=" + Mib(16) + " +d=" + Mib(d) + " -d -a "; };
  const Planned planned = PlanOf(iteration(4) + iteration(9) + iteration(3));
  EXPECT_EQ(planned.Serve().arena_bytes, (16 + 10) * kMiB);  // in steps of 2 MiB
  EXPECT_EQ(planned.Serve({2}).arena_bytes, (16 + 4) * kMiB);
}

TEST(TrialRunTest, SegmentsThatAreNotServedOnlyCount) {
  // Two scripts in turn: what is served behind the gap must meet its own.
  const std::string even = "I +a=" + Mib(8) + " +b=" + Mib(2) + " -a -b ";
  const std::string odd = "I +c=" + Mib(6) + " -c +d=" + Mib(3) + " -d +e=" + Mib(1) + " -e ";
  const Planned planned = PlanOf(Repeat(even + odd, 4));
  ASSERT_EQ(planned.plan.cycle.size(), 2u);
  const TrialRun whole = planned.Serve();
  const TrialRun part = planned.Serve({3, 4, 5});
  EXPECT_EQ(whole.slot_hits, whole.requests);
  EXPECT_EQ(part.requests, whole.requests - (2 + 3 + 2));
  EXPECT_EQ(part.slot_hits, part.requests);
}

TEST(TrialRunTest, CapturedBlocksAreUpstreams) {
  const Planned planned = PlanOf(Repeat("I +a=" + Mib(4) + " +g=" + Mib(3) + "! -a -g ", 3));
  const TrialRun run = planned.Serve();
  EXPECT_EQ(run.arena_bytes, 4 * kMiB);
  EXPECT_EQ(run.upstream_peak_bytes, 3 * kMiB);
  EXPECT_EQ(run.peak_live_bytes, 7 * kMiB);
  EXPECT_EQ(run.slot_hits, 3u);
}

// 6 and 2 MiB lie where the graph's 8 do between its launches: the plan without them has only the block of 1 MiB.
TEST(TrialRunTest, WhatAGraphsPoolServesIsNotAskedFor) {
  const Planned planned =
      PlanOf("+w=" + Mib(4) + " C0 +d=" + Mib(8) + "!1^0 -d C0- " +
             Repeat("I +b=" + Mib(1) + " R0 L:mlp +t=" + Mib(6) + " +u=" + Mib(2) + " -t L:head +v=512 -u -v -b", 4));
  const Replay replay = ReplayTrace(planned.traced.devices[0], planned.plan, {}).value();  // which are lent
  ASSERT_FALSE(planned.plan.lent_slots.empty());
  const DevicePlan rest = WithoutLent(planned.plan);
  const Script& script = rest.cycle.at(0);
  ASSERT_EQ(script.entries.size(), 2u);
  EXPECT_EQ(script.entries[0].bytes, 1 * kMiB);
  EXPECT_EQ(planned.plan.cycle[0].entries[0].expected_life, 4u);
  EXPECT_EQ(script.entries[0].expected_life, 2u);
  EXPECT_EQ(script.entries[1].expected_life, 1u);
  std::vector<std::uint32_t> firsts;
  for (const Phase& phase : script.phases) {
    if (phase.mark.name == "mlp" || phase.mark.name == "head") firsts.push_back(phase.first_entry);
  }
  EXPECT_EQ(firsts, (std::vector<std::uint32_t>{1, 1}));
  const std::vector<bool> all(planned.traced.devices[0].segments.size(), true);
  const TrialRun run = ServeTraced(planned.traced, planned.traced.devices[0], rest, all, replay.lent);
  EXPECT_EQ(run.slot_hits, 1 + 4 * 2u);
  EXPECT_EQ(run.dynamic_hits, 0u);
  EXPECT_LE(run.arena_bytes, 8 * kMiB);  // 5, in chunks
  EXPECT_EQ(run.upstream_peak_bytes, 8 * kMiB);
  EXPECT_EQ(run.peak_live_bytes, 13 * kMiB);
  const TrialOutcome outcome =
      SlotTrial().Serve(planned.traced, planned.traced.devices[0], planned.plan, replay.lent).value();
  EXPECT_EQ(outcome.arena_bytes, run.arena_bytes);
}

TEST(TrialRunTest, AnEvaluationInsideAFenceLeavesTheScriptWhereItWas) {
  const Planned planned =
      PlanOf(Repeat("I +a=" + Mib(4) + " (eval +e=" + Mib(2) + " -e ) +b=" + Mib(2) + " -b -a ", 3));
  const TrialRun run = planned.Serve();
  EXPECT_EQ(run.requests, 9u);
  EXPECT_EQ(run.slot_hits, 6u);
  EXPECT_EQ(run.dynamic_hits + run.slot_hits, 9u);
}

}  // namespace
}  // namespace stalloc::planner
