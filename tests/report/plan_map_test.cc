#include "planner/report/plan_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/analysis/rank_planner.h"
#include "planner/packing/portfolio.h"
#include "tests/report/facts_fixture.h"

namespace stalloc::planner {
namespace {

Entry MakeEntry(std::uint32_t slot, Bytes bytes, std::uint64_t life) {
  Entry entry;
  entry.bytes = entry.min_bytes = entry.max_bytes = bytes;
  entry.slot = slot;
  entry.expected_life = life;
  return entry;
}

// Two slots of the same height. The lower stays; the upper is used by the first request of the period up to the second,
// and by the third until the next period's first.
DevicePlan SmallPlan() {
  DevicePlan plan;
  plan.arena_bytes = 2048;
  plan.slots = {{0, 1024}, {1024, 1024}};
  plan.prologue.push_back({{}, {MakeEntry(0, 1024, 0)}});
  plan.cycle.push_back({{}, {MakeEntry(1, 1024, 1), MakeEntry(kNoSlot, 4096, 1), MakeEntry(1, 512, 1)}});
  return plan;
}

TEST(PlanMapTest, CellsShowClassesAndIdlePlaces) {
  const ScriptFacts facts("+w=1024 " + Repeat("I F0 +a=1024 -a +b=4096 -b +c=512 B0 -c ", 3));
  const PlanMap map = DrawPlan(SmallPlan(), *facts, {4, 2});
  EXPECT_EQ(map.positions, 4u);
  EXPECT_EQ(map.cycle_begin, 1u);
  const char weights = '0' + static_cast<char>(MemoryClass::kWeights);
  const char temporary = '0' + static_cast<char>(MemoryClass::kTemporaries);
  const char activation = '0' + static_cast<char>(MemoryClass::kActivations);
  EXPECT_EQ(map.classes, std::string({weights, weights, weights, weights, '.', temporary, '.', activation}));
  EXPECT_EQ(map.fullness, "99990909");
  EXPECT_THAT(map.planned, testing::ElementsAre(1024, 2048, 1024, 1536));
  EXPECT_THAT(map.unplanned, testing::ElementsAre(0, 0, 4096, 0));
  EXPECT_NEAR(map.idle_share, 1024.0 / (3 * 2048), 1e-9);
}

TEST(PlanMapTest, ABlockThatOutlivesThePeriodComesInAgain) {
  DevicePlan plan = SmallPlan();
  plan.cycle[0].entries[0].slot = kNoSlot;
  plan.cycle[0].entries[2].expected_life = 2;
  const ScriptFacts facts("+w=1024 " + Repeat("I +a=1024 -a +b=4096 -b +c=512 -c ", 3));
  const PlanMap map = DrawPlan(plan, *facts, {4, 2});
  EXPECT_EQ(map.fullness.substr(4), "0909");
}

TEST(PlanMapTest, ARealPlanFillsWhatItReports) {
  const ScriptFacts facts("INIT +w=40960 " + Repeat("I F0 +a=10240 +b=20480 -a B0 +c=10240 -b -c O +s=5120 -s ", 4));
  const auto solver = MakePortfolio();
  const RankResult result = PlanRank(facts.trace(), {}, *solver).value();
  const DevicePlan& plan = result.plan->devices[0];
  const PlanMap map = DrawPlan(plan, *facts);
  const Bytes most = *std::max_element(map.planned.begin(), map.planned.end());
  EXPECT_NEAR(static_cast<double>(most), static_cast<double>(result.report.devices[0].peak.live_bytes), 1.0);
  EXPECT_EQ(map.classes.size(), map.columns * map.rows);
  EXPECT_EQ(map.phases.front().name, "set-up");
  EXPECT_EQ(std::count_if(map.phases.begin(), map.phases.end(),
                          [](const PlanMap::Phase& phase) { return phase.name == "steady iteration"; }),
            1);
}

}  // namespace
}  // namespace stalloc::planner
