#include "planner/report/live_series.h"

#include <gtest/gtest.h>

#include <numeric>

#include "tests/report/facts_fixture.h"

namespace stalloc::planner {
namespace {

const std::string kSampledRun = "+w=4096 H=8192 " + Repeat("I F0 +a=1024 +t=512 -t B0 +g=2048 -a O -g H=16384 ", 4);

Bytes PeakOf(const std::vector<LivePoint>& points) {
  Bytes peak = 0;
  for (const LivePoint& point : points) peak = std::max(peak, point.live);
  return peak;
}

TEST(LiveSeriesTest, EveryStateIsThereWhereThereIsRoom) {
  const ScriptFacts facts(kSampledRun);
  const auto points = SampleLive(*facts, 0, facts->events, facts->events);
  ASSERT_EQ(points.size(), 25u);  // one for each allocation and free
  EXPECT_EQ(points.front().event, 0u);
  EXPECT_EQ(PeakOf(points), 4096u + 1024u + 2048u);
  EXPECT_EQ(points.back().live, 4096u);
}

TEST(LiveSeriesTest, ThePeakAndTheClassTotalsSurviveFewPoints) {
  const ScriptFacts facts(kSampledRun);
  for (const std::size_t stretches : {1u, 2u, 5u}) {
    const auto points = SampleLive(*facts, 0, facts->events, stretches);
    EXPECT_LE(points.size(), 2 * stretches);
    EXPECT_EQ(PeakOf(points), 7168u);
    for (const LivePoint& point : points) {
      EXPECT_EQ(std::accumulate(point.by_class.begin(), point.by_class.end(), Bytes{0}), point.live);
    }
    EXPECT_TRUE(std::is_sorted(points.begin(), points.end(),
                               [](const LivePoint& a, const LivePoint& b) { return a.event < b.event; }));
  }
}

TEST(LiveSeriesTest, AStretchInTheMiddleBeginsWithWhatIsLiveThere) {
  const ScriptFacts facts(kSampledRun);
  const std::uint64_t begin = facts.traced().segmentation.segments[2].begin_event;
  const auto points = SampleLive(*facts, begin, facts->events, 100);
  EXPECT_EQ(points.front().event, begin);
  EXPECT_EQ(points.front().live, 4096u);
}

TEST(LiveSeriesTest, HeldKeepsItsGreatest) {
  const ScriptFacts facts(kSampledRun);
  EXPECT_EQ(SampleHeld(*facts, 100).size(), 5u);
  const auto few = SampleHeld(*facts, 2);
  ASSERT_EQ(few.size(), 2u);
  EXPECT_EQ(few[0].held, 16384u);
  EXPECT_EQ(few[0].event, SampleHeld(*facts, 100)[0].event) << "where the stretch begins";
}

}  // namespace
}  // namespace stalloc::planner
