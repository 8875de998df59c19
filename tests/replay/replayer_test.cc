#include "bench/replay/replayer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "bench/replay/expandable_upstream.h"
#include "bench/replay/experiment.h"
#include "bench/replay/floors.h"
#include "bench/replay/live_ranges.h"
#include "bench/replay/results.h"
#include "tests/replay/run_text.h"
#include "tests/replay/scripted_recording.h"

namespace stalloc::bench {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::size_t kPlanned = static_cast<std::size_t>(ServedBy::kPlanned);
constexpr std::size_t kDynamic = static_cast<std::size_t>(ServedBy::kDynamic);
constexpr std::size_t kUpstream = static_cast<std::size_t>(ServedBy::kUpstream);

TEST(LiveRangesTest, OverlapOfAnyKindIsRefused) {
  LiveRanges ranges;
  EXPECT_TRUE(ranges.Add(1000, 100));
  EXPECT_TRUE(ranges.Add(1100, 100));
  EXPECT_TRUE(ranges.Add(900, 100));
  EXPECT_FALSE(ranges.Add(1000, 100));  // the same
  EXPECT_FALSE(ranges.Add(1199, 10));   // its end
  EXPECT_FALSE(ranges.Add(850, 51));    // its beginning
  EXPECT_FALSE(ranges.Add(0, 5000));    // around
  EXPECT_FALSE(ranges.Add(1010, 10));   // inside
  EXPECT_TRUE(ranges.Remove(1000));
  EXPECT_FALSE(ranges.Remove(1000));
  EXPECT_TRUE(ranges.Add(1010, 10));
}

TEST(ExpandableUpstreamTest, BlocksLieApartAndPagesAreHeld) {
  ExpandableUpstream upstream;
  LiveRanges ranges;
  std::vector<void*> blocks;
  for (int i = 0; i < 200; ++i) {
    const Bytes bytes = (i % 3 == 0 ? 30 * kMiB : 700) + static_cast<Bytes>(i);
    void* const block = upstream.Allocate(bytes, i % 2 == 0 ? 0 : 0x7fff0000);
    ASSERT_TRUE(ranges.Add(reinterpret_cast<Address>(block), BlockBytes(bytes))) << i;
    blocks.push_back(block);
    if (i % 5 == 4) {
      EXPECT_TRUE(ranges.Remove(reinterpret_cast<Address>(blocks[blocks.size() / 2])));
      upstream.Free(blocks[blocks.size() / 2]);
      blocks.erase(blocks.begin() + static_cast<std::ptrdiff_t>(blocks.size() / 2));
    }
  }
  const Bytes held = upstream.held();
  EXPECT_GT(held, 30 * kMiB);
  EXPECT_EQ(held % (2 * kMiB), 0u);
  for (void* const block : blocks) upstream.Free(block);
  EXPECT_EQ(upstream.held(), held);  // cached
}

const char* const kSteady =
    "+w=4194304 I +a=8388608 +b=1048576 -a -b I +a=8388608 +b=1048576 -a -b "
    "I +a=8388608 +b=1048576 -a -b I +a=8388608 +b=1048576 -a -b";

TEST(ExperimentTest, WhatRepeatsIsServedByThePlanInItsLiveBytes) {
  const Experiment experiment = RunExperiment(Cut(kSteady), {}).value();
  EXPECT_EQ(experiment.replayed.requests[kPlanned], 2u);
  EXPECT_EQ(experiment.replayed.requests[kUpstream], 0u);
  EXPECT_EQ(experiment.replayed.peak_live_bytes, 13 * kMiB);
  ASSERT_EQ(experiment.replayed.iterations.size(), 1u);
  EXPECT_EQ(experiment.replayed.iterations[0].live_bytes, 13 * kMiB);
  EXPECT_EQ(experiment.replayed.peak_held_bytes, 14 * kMiB);  // in units of 2 MiB
  EXPECT_TRUE(experiment.replayed.growths.empty());
  EXPECT_EQ(experiment.times[kPlanned].pairs, 2u);
  EXPECT_GT(experiment.times[kPlanned].median_ns, 0.0);
  EXPECT_GE(experiment.expandable_bytes, experiment.replayed.peak_live_bytes);
  EXPECT_GE(experiment.native_bytes, experiment.replayed.peak_live_bytes);
}

TEST(ExperimentTest, WhatNoPlanKnowsIsServedAllTheSameAndCounted) {
  const Experiment experiment =
      RunExperiment(Cut(std::string(kSteady) + " I +a=8388608 +x=31457280 +b=1048576 -a -b -x"),
                    {.planned = {0, 1, 2}, .served = {4}, .times = false})
          .value();
  EXPECT_EQ(experiment.replayed.requests[kPlanned], 2u);
  EXPECT_EQ(experiment.replayed.requests[kUpstream] + experiment.replayed.requests[kDynamic], 1u);
  EXPECT_EQ(experiment.replayed.bytes[kUpstream] + experiment.replayed.bytes[kDynamic], 30 * kMiB);
  EXPECT_EQ(experiment.replayed.peak_live_bytes, 43 * kMiB);
  EXPECT_GE(experiment.replayed.peak_held_bytes, 43 * kMiB);
  EXPECT_EQ(experiment.times[kPlanned].pairs, 0u);  // not asked for
}

TEST(ExperimentTest, WithoutDynamicSpaceUpstreamServesWhatHasNoSlot) {
  const Recording recording = Cut(std::string(kSteady) + " I +a=8388608 +x=31457280 +b=1048576 -a -b -x");
  const auto serve = [&](bool dynamic) {
    return RunExperiment(recording, {.served = {4}, .dynamic = dynamic, .times = false}).value().replayed;
  };
  EXPECT_EQ(serve(false).bytes[kUpstream], 30 * kMiB);
  EXPECT_TRUE(serve(false).growths.empty());
  EXPECT_EQ(serve(true).bytes[kDynamic], 30 * kMiB);
  EXPECT_GE(serve(true).growth_bytes(), 28 * kMiB);
}

TEST(ExperimentTest, SeveralIterationsAreServedInTurnEachWithItsPeaks) {
  // The last but one asks for 30 MiB more; what that took stays held.
  const std::string more = " I +a=8388608 +x=31457280 +b=1048576 -a -b -x I +a=8388608 +b=1048576 -a -b";
  const Experiment experiment =
      RunExperiment(Cut(kSteady + more), {.planned = {0, 1, 2}, .served = {3, 4, 5}, .times = false}).value();
  ASSERT_EQ(experiment.replayed.iterations.size(), 3u);
  const std::vector<IterationPeaks>& own = experiment.replayed.iterations;
  EXPECT_EQ(own[0].live_bytes, 13 * kMiB);
  EXPECT_EQ(own[0].held_bytes, 14 * kMiB);
  EXPECT_EQ(own[1].live_bytes, 43 * kMiB);
  EXPECT_EQ(own[2].live_bytes, 13 * kMiB);
  EXPECT_GE(own[1].held_bytes, 43 * kMiB);
  EXPECT_EQ(own[2].held_bytes, own[1].held_bytes);
  EXPECT_EQ(experiment.replayed.requests[kPlanned], 6u);
  ASSERT_EQ(experiment.expandable_iterations.size(), 3u);
  EXPECT_EQ(experiment.expandable_iterations.back().held_bytes, experiment.expandable_bytes);
}

TEST(ExperimentTest, EachServedIterationHasItsCounts) {
  const std::string more = " I +a=8388608 +x=31457280 +b=1048576 -a -b -x I +a=8388608 +b=1048576 -a -b";
  const Experiment experiment =
      RunExperiment(Cut(kSteady + more), {.planned = {0, 1, 2}, .served = {3, 4, 5}, .times = false}).value();
  const std::vector<Activity>& activities = experiment.replayed.activities;
  ASSERT_EQ(activities.size(), 3u);
  for (const Activity& activity : activities) EXPECT_EQ(activity.requests[kPlanned], 2u);
  EXPECT_EQ(activities[0].growth_bytes, 0u);
  EXPECT_EQ(activities[0].driver_calls, DriverCallCounts{});
  EXPECT_EQ(activities[1].requests[kDynamic], 1u);
  EXPECT_EQ(activities[1].growth_bytes, experiment.replayed.growth_bytes());
  EXPECT_GE(activities[1].growth_bytes, 28 * kMiB);
  for (const DriverCall call : {DriverCall::kCreate, DriverCall::kMap, DriverCall::kSetAccess}) {
    EXPECT_GE(activities[1].driver_calls[static_cast<std::size_t>(call)], 1u) << DriverCallName(call);
  }
  EXPECT_EQ(activities[2].growth_bytes, 0u) << "what it took stays";
  EXPECT_EQ(activities[2].requests[kDynamic], 0u);
}

// What has no slot, of another size in each iteration, finds room where the plan's largest block was.
TEST(ExperimentTest, OnACardOfItsLiveBytesARunHoldsNoMoreAndOnAFreeOneNothingMoves) {
  std::string varying;
  for (int i = 0; i < 9; ++i)
    varying += " I +a=8388608 -a +x=" + std::to_string((6 + i % 3) << 20) + " +b=4194304 -b -x";
  ExperimentOptions options{.planned = {0, 1, 2}, .served = {3, 4, 5, 6, 7, 8, 9, 10, 11}, .times = false};
  const auto calls_of = [](const Activity& activity) {
    std::uint64_t calls = 0;
    for (const DriverCall call : {DriverCall::kMap, DriverCall::kUnmap, DriverCall::kSynchronize}) {
      calls += activity.driver_calls[static_cast<std::size_t>(call)];
    }
    return calls;
  };
  const Experiment free = RunExperiment(Cut(kSteady + varying), options).value();
  for (std::size_t i = 0; i < free.replayed.activities.size(); ++i) {
    EXPECT_EQ(free.replayed.activities[i].moves, 0u) << i;
    if (i < 6) continue;  // each size has come twice
    EXPECT_EQ(calls_of(free.replayed.activities[i]), 0u) << i;
  }
  EXPECT_GT(free.replayed.ratio(), 1.01) << "else a card of so much binds nothing";
  options.card = 1.01;
  const Experiment full = RunExperiment(Cut(kSteady + varying), options).value();
  EXPECT_LE(static_cast<double>(full.replayed.peak_held_bytes),
            1.01 * static_cast<double>(full.replayed.peak_live_bytes));
}

// As under Auto. What each cycle leaves to the next is upstream's until the plan comes, in the pages of the loop.
TEST(ExperimentTest, ARunTakesItsPlanUpOnTheWay) {
  const std::string iteration = " I +a=33554432 +b=8388608 +last=4194304 -a -b";
  const std::string later = " I +a=33554432 -last +b=8388608 +last=4194304 -a -b";
  std::string script = "+w=33554432" + iteration;
  for (int i = 0; i < 7; ++i) script += later;
  const Experiment experiment =
      RunExperiment(Cut(script),
                    {.planned = {0, 1, 2, 3}, .served = {6, 7}, .times = false, .takes_plan = true, .awaited = {4, 5}})
          .value();
  const Replayed& replayed = experiment.replayed;
  EXPECT_EQ(replayed.requests[kPlanned], 6u);
  EXPECT_EQ(replayed.requests[kUpstream], 0u);
  ASSERT_TRUE(replayed.since_plan.has_value());
  const SincePlan& since = *replayed.since_plan;
  EXPECT_EQ(since.peaks.live_bytes, 76 * kMiB);
  EXPECT_EQ(since.first_arena_bytes, 32 * kMiB);
  EXPECT_EQ(since.first_arena_live_bytes, 32 * kMiB);
  EXPECT_EQ(since.peaks.held_bytes, since.first_arena_bytes + since.plan_arena_bytes + since.upstream_bytes);
  EXPECT_GT(replayed.peak_held_bytes, since.peaks.held_bytes) << "before the plan";
  EXPECT_EQ(replayed.upstream_bytes, 0u) << "the last one's page has gone back";
  EXPECT_THAT(ResultsJson({experiment}, {}, {}), HasSubstr("\"since_plan\""));
}

TEST(ExperimentTest, AllOrdersKeepTheFirstPlannedIteration) {
  const std::vector<Experiment> experiments = RunAllOrders(Cut(kSteady), {.times = false}).value();
  ASSERT_EQ(experiments.size(), 6u);
  std::set<std::vector<std::size_t>> orders;
  for (const Experiment& experiment : experiments) {
    EXPECT_EQ(experiment.planned.front(), 0u);
    std::vector<std::size_t> order = experiment.planned;
    order.push_back(experiment.served.front());
    EXPECT_TRUE(orders.insert(order).second);
  }
}

TEST(ExperimentTest, OneSpreadOverSeveral) {
  std::vector<Experiment> experiments(2);
  experiments[0].replayed = {.peak_live_bytes = 100, .peak_held_bytes = 100};
  experiments[1].replayed = {.peak_live_bytes = 100, .peak_held_bytes = 102};
  EXPECT_DOUBLE_EQ(RatioSpread(experiments).mean, 1.01);
  EXPECT_DOUBLE_EQ(RatioSpread(experiments).worst, 1.02);
}

TEST(ExperimentTest, AnIterationThatIsNotThereIsNamed) {
  EXPECT_THAT(std::string(RunExperiment(Cut(kSteady), {.served = {4}}).status().message()),
              HasSubstr("no iteration 4: it has 0 to 3"));
}

// Two blocks that live at the same time have slots that overlap: the engine serves only one of them from the arena, and
// a plan that the runtime refuses is an error, not a result.
TEST(ReplayerTest, ABadPlanNeverOverlaps) {
  const Recording recording = Cut("I +a=1048576 +b=2097152 -a -b I +a=1048576 +b=2097152 -a -b");
  const ComposedRun run = ComposeRun(recording, Pieces(recording, {0, 1}), MarkStyle::kRecorded);
  DevicePlan plan;
  plan.arena_bytes = 2 * kMiB;
  plan.slots = {{0, kMiB}, {0, 2 * kMiB}};
  plan.prologue.resize(1);
  plan.cycle.resize(1);
  plan.cycle[0].entries = {{.bytes = kMiB, .min_bytes = kMiB, .max_bytes = kMiB, .slot = 0},
                           {.bytes = 2 * kMiB, .min_bytes = 2 * kMiB, .max_bytes = 2 * kMiB, .slot = 1}};
  const Replayed replayed = ReplayRun(run, plan, {.first = 1}).value();
  EXPECT_EQ(replayed.requests[kPlanned], 1u);
  EXPECT_EQ(replayed.requests[kPlanned] + replayed.requests[kDynamic] + replayed.requests[kUpstream], 2u);
  EXPECT_THAT(std::string(ReplayRun(run, DevicePlan{}, {.first = 1}).status().message()), HasSubstr("no arena"));
}

TEST(FloorsTest, EachIsNamedOnceAndAMissIsSeen) {
  std::set<std::string> names;
  for (const Floor& floor : Floors()) {
    EXPECT_TRUE(names.insert(floor.name).second) << floor.name;
    EXPECT_GT(floor.ratio, 1.0);
    EXPECT_LE(floor.ratio, floor.late_share > 0.01 ? 1.018 : floor.late_share > 0 ? 1.015 : 1.01);
  }
  EXPECT_EQ(ChosenFloors({}).value().size(), Floors().size());
  ASSERT_EQ(ChosenFloors({"gpt_moe16/tail-cut"}).value().size(), 1u);
  EXPECT_TRUE(ChosenFloors({"gpt_moe16/tail-cut"}).value()[0].cut_tail);
  EXPECT_THAT(std::string(ChosenFloors({"gpt"}).status().message()),
              AllOf(HasSubstr("gpt_moe16/edited"), HasSubstr("found gpt")));
  FloorResult result{.floor = {.name = "x", .run = "x", .ratio = 1.01}, .experiments = std::vector<Experiment>(2)};
  result.experiments[0].replayed = {.peak_live_bytes = 1000, .peak_held_bytes = 1000};
  result.experiments[1].replayed = {.peak_live_bytes = 1000, .peak_held_bytes = 1019};
  EXPECT_TRUE(result.held());
  result.experiments[1].replayed.peak_held_bytes = 1021;
  EXPECT_FALSE(result.held());
  EXPECT_THAT(FloorTable({result}), HasSubstr("| 1.01000 | 1.01050 | 1.02100 | 2 |"));
}

TEST(ResultsTest, TableAndJsonHaveTheFigures) {
  const Experiment experiment = RunExperiment(Cut(kSteady), {}).value();
  EXPECT_THAT(ExperimentTable({experiment}), HasSubstr("| script | 0,1,2 -> 3 | 0.013 | 1.07692 |"));
  Experiment grown = experiment;
  grown.replayed.growths = {{7, 1000, 4 * kMiB, 8 * kMiB, 6 * kMiB}, {9, 3000, 2 * kMiB, 10 * kMiB, 9 * kMiB}};
  EXPECT_EQ(grown.replayed.growth_bytes(), 6 * kMiB);
  const std::string json = ResultsJson({experiment}, {}, {});
  EXPECT_THAT(json, HasSubstr("\"peak_held_bytes\": 14680064"));
  EXPECT_THAT(json, HasSubstr("\"growth_steps\": 0"));
}

}  // namespace
}  // namespace stalloc::bench
