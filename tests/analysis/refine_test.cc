#include "planner/analysis/refine.h"

#include <gtest/gtest.h>

#include "tests/analysis/plan_fixture.h"

namespace stalloc::planner {
namespace {

// Scripts: set-up with w; the template with a, d and b.
const std::string kScript = "+w=4096 " + Repeat("I +a=4096 +d=2048 -d +b=512 -b -a ", 3);

ObservedDevice Saw(std::vector<ObservedEntry> entries) { return {0, {1, 3}, std::move(entries)}; }

TEST(RefineTest, SizesThatWereNotTracedMakeARequestDynamic) {
  Planned planned = PlanOf(kScript);
  ASSERT_FALSE(HasVarying(planned.model));
  Widened widened;
  const ObservedDevice observed = Saw({{1, 1, 1024, 9216, 1, 5, 2}, {1, 0, 4096, 4096, 3, 5, 0}});
  ASSERT_TRUE(Widen(planned.device, observed, &planned.model, &widened).ok());
  const CycleEntry& d = planned.model.scripts[0][1];
  EXPECT_EQ(d.entry_class, EntryClass::kDynamic);
  EXPECT_EQ(d.unplanned, Unplanned::kDynamic);
  EXPECT_EQ(d.min_bytes, 1024u);
  EXPECT_EQ(d.bytes, 2048u);
  EXPECT_EQ(d.max_bytes, 9216u);
  EXPECT_EQ(planned.model.scripts[0][0].entry_class, EntryClass::kStatic);
  EXPECT_EQ(widened.sizes, 1u);
  EXPECT_EQ(widened.lives, 0u);
}

TEST(RefineTest, LongerLivesKeepThePlaceForLonger) {
  Planned planned = PlanOf(kScript);
  EXPECT_EQ(planned.plan.cycle[0].entries[1].expected_life, 1u);
  Widened widened;
  ASSERT_TRUE(Widen(planned.device, Saw({{1, 1, 2048, 2048, 2, 5, 0}}), &planned.model, &widened).ok());
  EXPECT_EQ(widened.lives, 1u);
  const Timeline timeline = BuildTimeline(planned.device, planned.model);
  EXPECT_EQ(timeline.scripts[1].entries[1].life, 2u);
  // d and b are now alive together.
  EXPECT_EQ(LoadBound(timeline.problem), LoadBound(planned.timeline.problem) + 512);
}

TEST(RefineTest, ShorterLivesAndThePrologueChangeNothing) {
  Planned planned = PlanOf(kScript);
  Widened widened;
  const ObservedDevice observed = Saw({{0, 0, 512, 8192, 9, 1, 0}, {1, 0, 4096, 4096, 1, 5, 0}});
  ASSERT_TRUE(Widen(planned.device, observed, &planned.model, &widened).ok());
  EXPECT_EQ(widened.sizes + widened.lives, 0u);
  EXPECT_EQ(planned.model.scripts[0][0].end, 3);
}

TEST(RefineTest, AnotherPlansObservationsAreRefused) {
  Planned planned = PlanOf(kScript);
  Widened widened;
  for (const std::vector<std::uint32_t>& scripts : {std::vector<std::uint32_t>{1}, {1, 4}, {2, 3}, {1, 3, 4}}) {
    const ObservedDevice observed{0, scripts, {{1, 1, 512, 8192, 9, 1, 0}}};
    EXPECT_FALSE(Widen(planned.device, observed, &planned.model, &widened).ok());
  }
  EXPECT_FALSE(HasVarying(planned.model));
  EXPECT_TRUE(Widen(planned.device, {0, {1, 3, 3}, {}}, &planned.model, &widened).ok());  // a cycle unrolled twice
}

}  // namespace
}  // namespace stalloc::planner
