#include "planner/analysis/replay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/analysis/rank_planner.h"
#include "tests/analysis/plan_fixture.h"

namespace stalloc::planner {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const std::string kReplayed =
    "+w=4096 I +a=1024 +b=2048 -a +c=1024 -b -c +s=512 " + Repeat("I +a=1024 +b=2048 -a +c=1024 -b -c", 3);

std::string ErrorOf(const Planned& planned) {
  return std::string(ReplayTrace(planned.device, planned.plan).status().message());
}

TEST(ReplayTest, AStaticRunIsServedWholly) {
  const Planned planned = PlanOf(kReplayed);
  const Replay replay = ReplayTrace(planned.device, planned.plan).value();
  for (const SegmentReplay& segment : replay.segments) {
    EXPECT_EQ(segment.hits, segment.requests);
  }
  EXPECT_EQ(replay.peak_live_bytes, 4096u + 512u + 1024u + 2048u);
  EXPECT_EQ(replay.planned_peak_bytes, replay.peak_live_bytes);
  EXPECT_EQ(replay.upstream_peak_bytes, 0u);
  EXPECT_EQ(planned.plan.arena_bytes, replay.peak_live_bytes);
}

TEST(ReplayTest, RejectsASlotMovedOntoALiveOne) {
  Planned planned = PlanOf(kReplayed);
  const auto& entries = planned.plan.cycle[0].entries;
  planned.plan.slots[entries[1].slot].offset = planned.plan.slots[entries[0].slot].offset;
  EXPECT_NE(ErrorOf(planned), "");
}

TEST(ReplayTest, RejectsASlotOutsideTheArena) {
  Planned planned = PlanOf(kReplayed);
  planned.plan.arena_bytes -= 512;
  EXPECT_THAT(ErrorOf(planned), HasSubstr("leaves the arena"));
}

TEST(ReplayTest, RejectsThePlanOfAnotherTrace) {
  Planned planned = PlanOf(kReplayed);
  planned.plan.cycle[0].entries[0].bytes = 512;
  EXPECT_THAT(ErrorOf(planned), HasSubstr("is not the traced request"));
  planned.plan.cycle[0].entries.pop_back();
  EXPECT_THAT(ErrorOf(planned), HasSubstr("as many entries"));
}

TEST(ReplayTest, RejectsATraceThatIsTooShort) {
  const Planned planned = PlanOf(kReplayed);
  const Trace shorter = TraceFromScript("+w=4096 I +a=1024 -a");
  const DeviceTrace device = BuildLifetimes(shorter).value()[0];
  EXPECT_FALSE(ReplayTrace(device, planned.plan).ok());
}

TEST(ReplayTest, CountsWhatUpstreamHasToHold) {
  const Planned planned = PlanOf(Repeat("I +a=4096 +b=1024@1 -a -b (eval +e=8192 -e )", 3), /*all_streams=*/false);
  const Replay replay = ReplayTrace(planned.device, planned.plan).value();
  EXPECT_EQ(replay.upstream_peak_bytes, 8192u);
  EXPECT_EQ(replay.segments[2].hits, 1u);
  EXPECT_EQ(replay.segments[2].unplanned, 1u);
}

TEST(ReplayTest, ExpectedLivesCountRequests) {
  const Planned planned = PlanOf("+w=4096 " + Repeat("I +a=1024 +b=2048 -a +c=1024 -b -c", 3));
  EXPECT_EQ(planned.plan.prologue[0].entries[0].expected_life, 0u);
  const auto& entries = planned.plan.cycle[0].entries;
  EXPECT_EQ(entries[0].expected_life, 2u);
  EXPECT_EQ(entries[1].expected_life, 2u);
  EXPECT_EQ(entries[2].expected_life, 1u);
}

TEST(ReplayTest, AVaryingRequestIsServedFromASlotThatIsLargeEnough) {
  const std::string script = "I +a=4096 +d=20000 -d -a I +a=4096 +d=30000 -d -a I +a=4096 +d=10000 -d -a";
  const auto hits = [&](const SlotChoice& choice) {
    const Planned planned = PlanOf(script, true, choice);
    const Replay replay = ReplayTrace(planned.device, planned.plan).value();
    return std::vector{replay.segments[1].hits, replay.segments[2].hits, replay.segments[3].hits};
  };
  EXPECT_THAT(hits({}), ElementsAre(1u, 1u, 1u));
  EXPECT_THAT(hits({SlotPolicy::kTemplate}), ElementsAre(2u, 1u, 2u));
  EXPECT_THAT(hits({SlotPolicy::kLargest}), ElementsAre(2u, 2u, 2u));
}

TEST(ReplayTest, ScriptsKeepTheirPhases) {
  const Planned planned = PlanOf("INIT +w=512 " + Repeat("I F0 +a=1024 B0 +b=512 -a -b O +c=512 -c E", 3));
  ASSERT_EQ(planned.plan.prologue[0].phases.size(), 1u);
  const auto& phases = planned.plan.cycle[0].phases;
  ASSERT_EQ(phases.size(), 4u);
  EXPECT_EQ(phases[0].first_entry, 0u);
  EXPECT_EQ(phases[1].first_entry, 1u);
  EXPECT_EQ(phases[2].first_entry, 2u);
  EXPECT_EQ(phases[3].mark.edge, MarkEdge::kEnd);
  EXPECT_EQ(phases[3].first_entry, 3u);
}

TEST(RankPlannerTest, EveryDeviceHasAPlan) {
  const Trace trace = TraceFromScript(Repeat("I D0 +a=4096 -a D1 +b=8192 -b D-1 +c=512 -c", 3));
  const auto solver = MakePortfolio();
  const RankResult result = PlanRank(trace, {}, *solver).value();
  ASSERT_TRUE(result.plan.has_value()) << result.plan_status;
  ASSERT_EQ(result.plan->devices.size(), 3u);
  EXPECT_EQ(result.plan->devices[0].device, kCpuDevice);
  EXPECT_EQ(result.plan->devices[2].arena_bytes, 8192u);
  EXPECT_TRUE(CheckPlanAgainstTrace(*result.plan, trace).ok());
}

TEST(RankPlannerTest, TheReportIsThereEvenWhereNothingCanBePlanned) {
  const auto solver = MakePortfolio();
  const RankResult result = PlanRank(TraceFromScript("+a=4096 +b=1024 -a -b"), {}, *solver).value();
  EXPECT_FALSE(result.plan.has_value());
  EXPECT_EQ(result.plan_status.code(), absl::StatusCode::kFailedPrecondition);
  ASSERT_EQ(result.report.devices.size(), 1u);
  EXPECT_EQ(result.report.devices[0].peak.live_bytes, 5120u);
}

TEST(RankPlannerTest, APlanOfAnotherRankIsRefused) {
  Trace trace = TraceFromScript(kReplayed);
  const auto solver = MakePortfolio();
  const Plan plan = *PlanRank(trace, {}, *solver).value().plan;
  trace.fingerprint.rank = 3;
  EXPECT_THAT(std::string(CheckPlanAgainstTrace(plan, trace).status().message()), HasSubstr("different ranks"));
}

}  // namespace
}  // namespace stalloc::planner
