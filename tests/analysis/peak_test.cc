#include "planner/analysis/peak.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/analysis/plan_fixture.h"

namespace stalloc::planner {
namespace {

Bytes At(const PeakReport& peak, PeakClass peak_class) { return peak.by_class[static_cast<std::size_t>(peak_class)]; }

PeakReport PeakOf(std::string_view script) {
  const Trace trace = TraceFromScript(script);
  const Planned planned = PlanOf(trace);
  return FindPeak(planned.device, &planned.model, PhaseMap(CutAtMarks(trace), trace.marks));
}

TEST(PeakTest, ClassesAddUpToThePeak) {
  const PeakReport peak =
      PeakOf("+w=4096 I +a=1024 +b=5000 -b -a +s=9000 I +a=1024 +b=6000 -b -a I +a=1024 +b=9999 -b -a");
  EXPECT_EQ(peak.live_bytes, 4096u + 9216u + 1024u + 10240u);
  EXPECT_EQ(peak.segment, 3u);
  EXPECT_EQ(peak.ordinal, 1u);
  EXPECT_EQ(At(peak, PeakClass::kSetUp), 4096u);
  EXPECT_EQ(At(peak, PeakClass::kWarmup), 9216u);
  EXPECT_EQ(At(peak, PeakClass::kStatic), 1024u);
  EXPECT_EQ(At(peak, PeakClass::kDynamic), 10240u);
}

TEST(PeakTest, CountsWhatRunsInsideFences) {
  const PeakReport peak = PeakOf(Repeat("I +a=1024 -a (eval +e=8192 -e )", 3));
  EXPECT_TRUE(peak.fenced);
  EXPECT_EQ(At(peak, PeakClass::kFenced), 8192u);
}

TEST(PeakTest, ListsTheLargestBlocksWithTheirPhases) {
  const PeakReport peak = PeakOf("+w=4096 " + Repeat("I F0 +a=8192 +t=512 -t B0 +g=2048 +u=1024 -u -a O -g", 3));
  EXPECT_EQ(peak.live_bytes, 4096u + 8192u + 2048u + 1024u);
  EXPECT_EQ(peak.phase, "iter 0, B 0");
  ASSERT_EQ(peak.blocks.size(), 4u);
  EXPECT_EQ(peak.blocks[0].bytes, 8192u);
  EXPECT_EQ(peak.blocks[0].memory_class, MemoryClass::kActivations);
  EXPECT_EQ(peak.blocks[0].allocated_in, "iter 0, F 0");
  EXPECT_EQ(peak.blocks[0].freed_in, "iter 0, B 0");
  EXPECT_EQ(peak.blocks[0].life_requests, 4u);
  EXPECT_EQ(peak.blocks[1].memory_class, MemoryClass::kWeights);
  EXPECT_EQ(peak.blocks[1].freed_in, "");
  EXPECT_EQ(peak.blocks[2].freed_in, "iter 0, optimizer");
  ASSERT_EQ(peak.phases.size(), 3u);
  EXPECT_EQ(peak.phases[2].phase, "iter 0, B 0");
  EXPECT_EQ(peak.phases[2].bytes, 3072u);
  EXPECT_EQ(peak.phases[2].blocks, 2u);
}

TEST(PeakTest, SummarizesPhases) {
  const Trace trace = TraceFromScript("+w=4096 I F0 +a=8192 +t=512 -t B0 -a (eval +e=1024 -e ) +b=512 -b O");
  const auto phases = SummarizePhases(BuildLifetimes(trace).value()[0], PhaseMap(CutAtMarks(trace), trace.marks));
  std::vector<std::string> found;
  for (const PhaseReport& phase : phases) {
    found.push_back(phase.name + " " + std::to_string(phase.begin_live_bytes) + " " +
                    std::to_string(phase.peak_live_bytes));
  }
  EXPECT_THAT(found, testing::ElementsAre("set-up 0 4096", "iter 0, between 4096 4096", "iter 0, F 0 4096 12800",
                                          "iter 0, B 0 12288 12288", "iter 0, fence 4096 5120", "iter 0, B 0 4096 4608",
                                          "iter 0, optimizer 4096 4096"));
}

TEST(PeakTest, SummarizesSegmentsAndStreams) {
  const Trace trace = TraceFromScript("+w=4096 I +a=1024 +b=512@1 ~a@1 -a -b I +a=1024 -a");
  const Segmentation cut = CutAtMarks(trace);
  const DeviceTrace device = BuildLifetimes(trace).value()[0];
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
