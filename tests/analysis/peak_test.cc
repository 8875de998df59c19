#include "planner/analysis/peak.h"

#include <gtest/gtest.h>

#include "tests/analysis/plan_fixture.h"

namespace stalloc::planner {
namespace {

Bytes At(const PeakReport& peak, PeakClass peak_class) { return peak.by_class[static_cast<std::size_t>(peak_class)]; }

TEST(PeakTest, ClassesAddUpToThePeak) {
  const Planned planned =
      PlanOf("+w=4096 I +a=1024 +b=5000 -b -a +s=9000 I +a=1024 +b=6000 -b -a I +a=1024 +b=9999 -b -a");
  const PeakReport peak = FindPeak(planned.device, &planned.model);
  EXPECT_EQ(peak.live_bytes, 4096u + 9216u + 1024u + 10240u);
  EXPECT_EQ(peak.segment, 3u);
  EXPECT_EQ(peak.ordinal, 1u);
  EXPECT_EQ(At(peak, PeakClass::kSetUp), 4096u);
  EXPECT_EQ(At(peak, PeakClass::kWarmup), 9216u);
  EXPECT_EQ(At(peak, PeakClass::kStatic), 1024u);
  EXPECT_EQ(At(peak, PeakClass::kDynamic), 10240u);
}

TEST(PeakTest, CountsWhatRunsInsideFences) {
  const Planned planned = PlanOf(Repeat("I +a=1024 -a (eval +e=8192 -e )", 3));
  const PeakReport peak = FindPeak(planned.device, &planned.model);
  EXPECT_TRUE(peak.fenced);
  EXPECT_EQ(At(peak, PeakClass::kFenced), 8192u);
}

TEST(PeakTest, SummarizesSegmentsAndStreams) {
  const Trace trace = TraceFromScript("+w=4096 I +a=1024 +b=512@1 ~a@1 -a -b I +a=1024 -a");
  const Segmentation cut = CutAtMarks(trace);
  const DeviceTrace device = BuildLifetimes(trace, cut).value()[0];
  const auto segments = SummarizeSegments(device, cut);
  EXPECT_EQ(segments[1].requests, 2u);
  EXPECT_EQ(segments[1].requested_bytes, 1536u);
  EXPECT_EQ(segments[1].peak_live_bytes, 5632u);
  const auto streams = SummarizeStreams(device);
  ASSERT_EQ(streams.size(), 2u);
  EXPECT_TRUE(streams[0].main);
  EXPECT_EQ(streams[0].recorded, 1u);
  EXPECT_EQ(streams[1].bytes, 512u);
}

}  // namespace
}  // namespace stalloc::planner
