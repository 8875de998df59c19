#include "planner/report/run_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/analysis/rank_planner.h"
#include "planner/packing/portfolio.h"
#include "tests/report/facts_fixture.h"

namespace stalloc::planner {
namespace {

using testing::HasSubstr;

TEST(RunViewTest, HoldsReportCurvesTablesAndPlan) {
  const ScriptFacts facts("+w=4096 " + Repeat("I F0 L:mlp +a=1024 B0 -a O +s=512 -s ", 3));
  const auto solver = MakePortfolio();
  const RankResult result = PlanRank(facts.trace(), {}, *solver).value();
  RunViewOptions planned;
  planned.plan = &*result.plan;
  const std::string with = RunViewJson(result.report, facts.traced(), facts.clock(), planned);
  EXPECT_EQ(std::count(with.begin(), with.end(), '\n'), 1);
  EXPECT_THAT(with, HasSubstr("\"peak\": {\"live_bytes\": 5120, "));
  EXPECT_THAT(with, HasSubstr("\"layers\": [\"\", \"mlp\"]"));
  EXPECT_THAT(with, HasSubstr("\"arena_bytes\": 5120"));
  const std::string without = RunViewJson(result.report, facts.traced(), facts.clock(), {});
  EXPECT_THAT(without, HasSubstr("\"plan\": null"));
}

TEST(RunViewTest, NearThePeakEveryEventIsDrawn) {
  const ScriptFacts facts("+w=4096 " + Repeat("I " + Repeat("F0 +a=1024 +t=512 -t B0 -a ", 500), 3));
  const auto solver = MakePortfolio();
  const RankResult result = PlanRank(facts.trace(), {}, *solver).value();
  const std::string view = RunViewJson(result.report, facts.traced(), facts.clock(), {});
  const std::size_t near = view.find("\"near_peak\": {\"event\": [");
  ASSERT_NE(near, std::string::npos);
  // The peak is event 4; marks change nothing and have no point.
  EXPECT_THAT(view.substr(near, 60), HasSubstr("[0, 3, 4, 5, 7, 9, 10, 11, 13, "));
}

TEST(RunViewTest, TellsEveryBlockWhereItIsAsked) {
  const ScriptFacts facts("+w=4096 " + Repeat("I F0 L:mlp +a=1024 B0 -a ", 3));
  const auto solver = MakePortfolio();
  const RankResult result = PlanRank(facts.trace(), {}, *solver).value();
  RunViewOptions options;
  EXPECT_THAT(RunViewJson(result.report, facts.traced(), facts.clock(), options), HasSubstr("\"blocks\": null"));
  options.every_block = true;
  EXPECT_THAT(RunViewJson(result.report, facts.traced(), facts.clock(), options),
              HasSubstr("\"blocks\": {\"event\": [0, 4, 10, 16], \"class\": [0, 3, 3, 3], \"layer\": [0, 1, 1, 1], "));
}

TEST(RunViewTest, DoesNotGrowWithTheTrace) {
  const auto length = [](int iterations) {
    const ScriptFacts facts("+w=4096 " + Repeat("I " + Repeat("F0 +a=1024 B0 -a ", 100), iterations));
    const auto solver = MakePortfolio();
    RankPlannerOptions options;
    options.plan = false;
    const RankResult result = PlanRank(facts.trace(), options, *solver).value();
    return RunViewJson(result.report, facts.traced(), facts.clock(), {}).size();
  };
  // The planner's own report has a row for every phase; what this adds has a limit.
  EXPECT_LT(length(60), 8u << 20);
}

}  // namespace
}  // namespace stalloc::planner
