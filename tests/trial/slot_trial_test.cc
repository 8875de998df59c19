#include "planner/trial/slot_trial.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "planner/analysis/rank_planner.h"
#include "tests/analysis/trace_script.h"

namespace stalloc::planner {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::Field;
using testing::IsEmpty;

RankResult PlanOf(const std::string& script, const SlotJudge& judge) {
  RankPlannerOptions options;
  options.packing.work = kWorkPerSecond;
  options.slot_judge = &judge;
  const auto solver = MakePortfolio();
  RankResult result = PlanRank(TraceFromScript(script), options, *solver).value();
  EXPECT_TRUE(result.plan_status.ok()) << result.plan_status;
  return result;
}

const PackingReport& PackingOf(const RankResult& result) { return *result.report.devices[0].packing; }

// Sizes in MiB.
std::string Allocate(const std::string& name, int mib) { return absl::StrCat("+", name, "=", mib * kMiB, " "); }

// Beside a weight, in each iteration: two experts that share 32 MiB, the first with so many, and what is alive when
// they are gone.
std::string SharedTokens(const std::vector<int>& first, int later = 4) {
  std::string script;
  for (const int mib : first) {
    absl::StrAppend(&script, "I ", Allocate("a", mib), Allocate("b", 32 - mib), "-a -b ", Allocate("later", later),
                    "-later ");
  }
  return script;
}

// In each iteration two threads, each with what its forward passes leave to its backward passes, get on as they happen
// to.
std::string TwoThreads(int iterations) {
  constexpr int kBlocks = 12;
  std::string script = Allocate("weight", 16);
  std::mt19937 random(1);
  for (int iteration = 0; iteration < iterations; ++iteration) {
    absl::StrAppend(&script, "I ", Allocate("varies", 16 + static_cast<int>(random() % 8)), "-varies ");
    std::array<int, 2> done = {0, 0};
    while (done[0] < 4 * kBlocks || done[1] < 4 * kBlocks) {
      const std::size_t thread = random() % 2;
      const int step = done[thread]++ % (2 * kBlocks);
      if (done[thread] > 4 * kBlocks) continue;
      const int block = std::min(step, 2 * kBlocks - 1 - step);
      const std::string name = absl::StrCat(thread == 0 ? "a" : "b", block);
      absl::StrAppend(&script, step < kBlocks ? Allocate(name, 8) : absl::StrCat("-", name, " "));
    }
  }
  return script;
}

Cycle CycleOf(std::uint32_t warmup, const std::vector<bool>& typical) {
  Cycle cycle;
  cycle.warmup = warmup;
  cycle.complete = cycle.traced = static_cast<std::uint32_t>(typical.size());
  cycle.typical = typical;
  return cycle;
}

TEST(SlotTrialTest, HoldsOutTheLatestIterationsThatCanBeSpared) {
  EXPECT_THAT(IterationsToHoldOut(CycleOf(0, {true})), IsEmpty());
  EXPECT_THAT(IterationsToHoldOut(CycleOf(0, {true, true})), IsEmpty());
  EXPECT_THAT(IterationsToHoldOut(CycleOf(1, {false, true})), IsEmpty());
  EXPECT_THAT(IterationsToHoldOut(CycleOf(1, {false, true, true})), ElementsAre(2));
  EXPECT_THAT(IterationsToHoldOut(CycleOf(0, {true, true, true})), ElementsAre(2));
  EXPECT_THAT(IterationsToHoldOut(CycleOf(1, {false, true, true, true})), ElementsAre(3));
  EXPECT_THAT(IterationsToHoldOut(CycleOf(1, {true, true, true, true, true})), ElementsAre(4, 3));
  EXPECT_THAT(IterationsToHoldOut(CycleOf(0, {true, true, false, true, true, false})), ElementsAre(4, 3));
  Cycle pairs = CycleOf(0, {true, true, true, true, true});
  pairs.period = 2;
  EXPECT_THAT(IterationsToHoldOut(pairs), ElementsAre(4));
}

TEST(SlotTrialTest, ASumThatStaysIsNotPlannedForTheMaximumOfEach) {
  const RankResult result = PlanOf(SharedTokens({8, 24, 16, 12, 20}), SlotTrial());
  const TrialReport& trial = *PackingOf(result).trial;
  EXPECT_THAT(trial.held_out, ElementsAre(4, 3));
  ASSERT_EQ(trial.candidates.size(), 3u);
  EXPECT_EQ(trial.candidates[0].requests, 4u * 3);  // of all iterations but the template
  EXPECT_EQ(trial.candidates[trial.taken].choice.policy, SlotPolicy::kStaticOnly);
  EXPECT_EQ(trial.candidates[0].held_bytes(), 32 * kMiB);
  EXPECT_EQ(trial.candidates[0].efficiency(), 1.0);
  EXPECT_FALSE(trial.candidates[2].served);  // its slots alone are more
  EXPECT_GE(trial.candidates[2].held_bytes(), 40 * kMiB);
  EXPECT_EQ(PackingOf(result).held_bytes, 32 * kMiB);
  EXPECT_EQ(result.plan->devices[0].predicted.efficiency, 1.0);
  EXPECT_EQ(result.plan->devices[0].cycle[0].entries[0].slot, kNoSlot);
}

TEST(SlotTrialTest, WhereThePeakIsElsewhereSlotsAreTaken) {
  // All candidates hold the 80 MiB that come later; from a slot is quicker than by a search.
  const RankResult result = PlanOf(SharedTokens({8, 24, 16, 12, 20}, 80), SlotTrial());
  const TrialReport& trial = *PackingOf(result).trial;
  for (const TrialOutcome& outcome : trial.candidates) EXPECT_EQ(outcome.held_bytes(), 80 * kMiB);
  EXPECT_EQ(trial.candidates[trial.taken].choice.policy, SlotPolicy::kLargest);
  const Entry& first = result.plan->devices[0].cycle[0].entries[0];
  ASSERT_NE(first.slot, kNoSlot);
  EXPECT_EQ(first.entry_class, EntryClass::kDynamic);
  EXPECT_EQ(result.plan->devices[0].slots[first.slot].capacity, 24 * kMiB);
}

TEST(SlotTrialTest, TheHeldOutIterationIsNotKnownToThePlanThatServesIt) {
  // Only the last iteration has 30 MiB for the first expert, so no slot on trial is that large; the plan then has one.
  const RankResult result = PlanOf(SharedTokens({8, 16, 12, 30}, 80), SlotTrial());
  const TrialReport& trial = *PackingOf(result).trial;
  ASSERT_THAT(trial.held_out, ElementsAre(3, 2));
  const TrialOutcome& largest = trial.candidates[2];
  EXPECT_GT(largest.dynamic_hits, 0u);
  const auto& plan = result.plan->devices[0];
  EXPECT_EQ(plan.cycle[0].entries[0].max_bytes, 30 * kMiB);
}

TEST(SlotTrialTest, WhereNoTwoIterationsHaveOneOrderWhatStaysAloneHasSlots) {
  const RankResult result = PlanOf(TwoThreads(8), SlotTrial());
  const TrialReport& trial = *PackingOf(result).trial;
  ASSERT_EQ(trial.candidates.size(), 4u);
  const TrialOutcome& taken = trial.candidates[trial.taken];
  EXPECT_EQ(taken.choice.policy, SlotPolicy::kWhatStays);
  for (const TrialOutcome& outcome : trial.candidates) EXPECT_GE(outcome.held_bytes(), taken.held_bytes());
  const DevicePlan& plan = result.plan->devices[0];
  EXPECT_THAT(plan.cycle[0].entries, Each(Field(&Entry::slot, kNoSlot)));
  EXPECT_EQ(plan.arena_bytes, 16 * kMiB);
}

TEST(SlotTrialTest, HeadroomLeavesNoOtherCandidate) {
  const RankResult result = PlanOf(SharedTokens({8, 24, 16, 12}), SlotTrial(0.5));
  const TrialReport& trial = *PackingOf(result).trial;
  ASSERT_EQ(trial.candidates.size(), 1u);
  EXPECT_EQ(trial.candidates[0].choice, (SlotChoice{SlotPolicy::kLargest, 0.5}));
  const DevicePlan& plan = result.plan->devices[0];
  EXPECT_EQ(plan.slots[plan.cycle[0].entries[0].slot].capacity, 36 * kMiB);
}

TEST(SlotTrialTest, WithTwoIterationsThePlanOfBothServesBoth) {
  const RankResult result = PlanOf(SharedTokens({8, 24}), SlotTrial());
  const TrialReport& trial = *PackingOf(result).trial;
  EXPECT_THAT(trial.held_out, IsEmpty());
  EXPECT_EQ(trial.candidates[0].requests, 6u);
  EXPECT_EQ(trial.candidates[trial.taken].held_bytes(), 32 * kMiB);
}

TEST(SlotTrialTest, WhereOnlyTheHeldOutIterationVariesThePlanOfAllServesAll) {
  // A cache that grows: each copy is larger than the one that it replaces, by as much as rows are long.
  std::string script = Allocate("weight", 4);
  for (const int growth : {4, 4, 3}) {
    absl::StrAppend(&script, "I ", Allocate("c1", growth));
    for (int i = 2; i <= 12; ++i)
      absl::StrAppend(&script, Allocate(absl::StrCat("c", i), growth * i), "-c", i - 1, " ");
    absl::StrAppend(&script, "-c12 ");
  }
  const RankResult result = PlanOf(script, SlotTrial());
  const TrialReport& trial = *PackingOf(result).trial;
  EXPECT_THAT(trial.held_out, IsEmpty()) << "the two others are alike, and tell nothing";
  EXPECT_NE(trial.candidates[trial.taken].choice.policy, SlotPolicy::kStaticOnly);
  EXPECT_EQ(PackingOf(result).held_bytes, (4 + 4 * (12 + 11)) * kMiB);
}

TEST(SlotTrialTest, WhatLaterRunsSawIsPlannedForOnTrialAndInThePlan) {
  // 26 MiB for the first expert were never traced.
  RankPlannerOptions options;
  options.packing.work = kWorkPerSecond;
  const SlotTrial judge(0.0);
  options.slot_judge = &judge;
  options.observed.emplace().devices.push_back({0, {0, 3}, {{1, 0, 8 * kMiB, 26 * kMiB, 2, 30, 1}}});
  const auto solver = MakePortfolio();
  const Trace trace = TraceFromScript(SharedTokens({8, 18, 11, 23}));
  const RankResult result = PlanRank(trace, options, *solver).value();
  ASSERT_TRUE(result.plan_status.ok()) << result.plan_status;
  const DevicePlan& plan = result.plan->devices[0];
  EXPECT_EQ(plan.slots[plan.cycle[0].entries[0].slot].capacity, 26 * kMiB);
  EXPECT_GE(PackingOf(result).trial->candidates[0].plan_bytes, (26 + 16) * kMiB);  // 24 for the second expert
}

// Fails when it is asked.
class NeverAsked final : public SlotJudge {
 public:
  absl::StatusOr<TrialReport> Judge(const TracedRank& /*traced*/, const DeviceTrace& /*device*/,
                                    const SteadyModel& /*model*/, const PackingOptions& /*packing*/) const override {
    return absl::InternalError("asked");
  }
  absl::StatusOr<TrialOutcome> Serve(const TracedRank& /*traced*/, const DeviceTrace& /*device*/,
                                     const DevicePlan& /*plan*/, const std::vector<bool>& /*lent*/) const override {
    return absl::InternalError("asked");
  }
};

TEST(SlotTrialTest, ARunThatRepeatsIsNotTried) {
  const RankResult result = PlanOf(SharedTokens({8, 8, 8}), NeverAsked());
  EXPECT_FALSE(PackingOf(result).trial.has_value());
  RankPlannerOptions options;
  const NeverAsked judge;
  options.slot_judge = &judge;
  const auto solver = MakePortfolio();
  EXPECT_FALSE(PlanRank(TraceFromScript(SharedTokens({8, 24})), options, *solver).ok());
}

TEST(SlotTrialTest, WhatAnEvaluationBorrowsFromTheArenaIsNotPredictedUpstream) {
  const auto run = [](int mib) {
    const std::string evaluation = "(eval " + Allocate("e", mib) + "-e ) ";
    return Repeat("I " + Allocate("a", 16) + "-a " + Allocate("b", 4) + "-b ", 3) + evaluation;
  };
  const RankResult fits = PlanOf(run(12), SlotTrial());
  EXPECT_FALSE(PackingOf(fits).trial.has_value());
  EXPECT_EQ(PackingOf(fits).held_bytes, 16 * kMiB);
  EXPECT_EQ(PackingOf(fits).predicted.upstream_peak_bytes, 0u);
  EXPECT_EQ(PackingOf(fits).predicted.efficiency, 1.0);
  const RankResult higher = PlanOf(run(20), SlotTrial());
  EXPECT_GE(PackingOf(higher).held_bytes, 20 * kMiB);
  EXPECT_EQ(PackingOf(higher).predicted.peak_live_bytes, 20 * kMiB);
}

}  // namespace
}  // namespace stalloc::planner
