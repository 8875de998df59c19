// Hand-overs between streams, and idle space, from a script to the plan and its report.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/analysis/rank_planner.h"
#include "planner/report/rank_json.h"
#include "planner/report/rank_text.h"
#include "proto/model/plan_shape.h"
#include "tests/analysis/plan_fixture.h"
#include "tests/analysis/trace_script.h"

namespace stalloc::planner {
namespace {

using testing::HasSubstr;
using testing::Not;

RankResult PlanScript(const std::string& script, bool all_streams) {
  RankPlannerOptions options;
  options.all_streams = all_streams;
  options.packing.work = WorkOfSeconds(0.2);
  const std::unique_ptr<Solver> solver = MakePortfolio();
  RankResult result = PlanRank(TraceFromScript(script), options, *solver).value();
  EXPECT_TRUE(result.plan_status.ok()) << result.plan_status;
  return result;
}

// A block of stream 1 between two of stream 0; the last one fills the arena, so bytes pass back to stream 0.
const char* const kTwoStreams = "I +a=4194304 -a +c=4194304@1 -c +d=6291456 -d +e=2097152 -e ";

TEST(SpaceTest, BlocksOfOtherStreamsStayOutOfAPlanOfOneStream) {
  const RankResult result = PlanScript(Repeat(kTwoStreams, 3), false);
  const DevicePlan& plan = result.plan->devices[0];
  EXPECT_EQ(plan.cycle[0].entries[1].slot, kNoSlot);
  EXPECT_TRUE(plan.stream_edges.empty());
  EXPECT_TRUE(result.report.devices[0].packing->hand_overs.empty());
  EXPECT_THAT(RankText(result.report), Not(HasSubstr("hand-overs from stream")));
}

TEST(SpaceTest, PlannedStreamsListTheirHandOvers) {
  const RankResult result = PlanScript(Repeat(kTwoStreams, 3), true);
  const DevicePlan& plan = result.plan->devices[0];
  const std::uint32_t copy = plan.cycle[0].entries[1].slot;
  ASSERT_NE(copy, kNoSlot);
  EXPECT_EQ(plan.arena_bytes, 6291456u);
  // The arena is as high as the greatest block, so each round hands bytes to stream 1 and back.
  bool there = false;
  bool back = false;
  for (const StreamEdge& edge : plan.stream_edges) {
    EXPECT_NE(edge.from_stream, edge.to_stream);
    there |= edge.to_slot == copy && edge.to_stream == 1;
    back |= edge.from_slot == copy && edge.to_stream == 0;
  }
  EXPECT_TRUE(there);
  EXPECT_TRUE(back);
  const std::vector<StreamPair>& pairs = result.report.devices[0].packing->hand_overs;
  ASSERT_EQ(pairs.size(), 2u);
  EXPECT_EQ(pairs[0].hand_overs + pairs[1].hand_overs, plan.stream_edges.size());
  EXPECT_THAT(RankText(result.report), HasSubstr("hand-overs from stream 0 to 1"));
  EXPECT_THAT(RankJson(result.report), HasSubstr("\"stream_hand_overs\""));
}

TEST(SpaceTest, BlocksRecordedOnAnotherStreamArePlannedWithAllStreams) {
  for (const bool all_streams : {false, true}) {
    const RankResult result = PlanScript(Repeat("I +a=4194304 ~a@1 -a +c=1024 -c ", 3), all_streams);
    EXPECT_EQ(result.plan->devices[0].cycle[0].entries[0].slot != kNoSlot, all_streams);
    EXPECT_NE(result.plan->devices[0].cycle[0].entries[1].slot, kNoSlot);
  }
}

TEST(SpaceTest, NobodySoonTakesTheBytesOfABlockThatAnotherStreamUses) {
  const std::string others = Repeat("+o=1024 -o ", 300) + Repeat("+o=1024@1 -o ", 20);
  const std::string script = "I +big=4194304 -big " + others + "+a=512@1 ~a@2 -a +b=512@1 -b " + others;
  for (const int iterations : {2, 3}) {
    const RankResult result = PlanScript(Repeat(script, iterations), true);
    const DevicePlan& plan = result.plan->devices[0];
    const std::vector<Entry>& entries = plan.cycle[0].entries;
    ASSERT_EQ(entries.size(), 643u);
    EXPECT_NE(plan.slots[entries[321].slot].offset, plan.slots[entries[322].slot].offset);
    EXPECT_EQ(plan.arena_bytes, 4194304u);
  }
}

TEST(SpaceTest, NobodyIsPlannedWhereStateWillBe) {
  // Only the first iteration has x and makes s. By size, x and s lie on a, and b above them.
  const std::string steady = "I +a=8192 +b=4096 -b -a ";
  const RankResult result = PlanScript("I +a=8192 +x=4096 -x -a +s=4096 " + Repeat(steady, 3), true);
  const DevicePlan& plan = result.plan->devices[0];
  EXPECT_EQ(plan.arena_bytes, 16384u);
  ASSERT_EQ(plan.prologue.size(), 2u);
  const std::vector<Entry>& first = plan.prologue[1].entries;
  ASSERT_EQ(first.size(), 3u);
  const Slot& state = plan.slots.at(first[2].slot);
  for (const Entry& entry : {first[0], first[1]}) {
    const Slot& slot = plan.slots.at(entry.slot);
    EXPECT_TRUE(slot.offset + slot.capacity <= state.offset || state.offset + state.capacity <= slot.offset);
  }
}

}  // namespace
}  // namespace stalloc::planner
