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
