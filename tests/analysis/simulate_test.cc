// Hand-worked cases for the simulated allocators, and what recorded runs held.
#include <gtest/gtest.h>

#include <map>
#include <sstream>
#include <string>

#include "planner/analysis/graph_captures.h"
#include "planner/analysis/simulate_expandable.h"
#include "planner/analysis/traced_rank.h"
#include "tests/analysis/corpus.h"
#include "tests/analysis/trace_script.h"

namespace stalloc::planner {
namespace {

constexpr SimulatedPool kSmall{0, true, false};
constexpr SimulatedPool kLarge{0, false, false};

// Calls in order, in MiB: "+9" or "a+9" requests, "-a" frees, "=20" is what must be held then.
void Play(SimulatedAllocator& allocator, const std::string& calls) {
  std::istringstream words(calls);
  std::map<std::string, SimulatedAllocator::BlockId> blocks;
  int number = 0;
  for (std::string word; words >> word;) {
    ++number;
    const std::size_t sign = word.find_first_of("+-=");
    const std::string after = word.substr(sign + 1);
    if (word[sign] == '+') {
      blocks[word.substr(0, sign)] = allocator.Allocate(std::stoull(after) * kMiB, kLarge);
    } else if (word[sign] == '-') {
      allocator.Free(blocks.at(after));
    } else {
      EXPECT_EQ(allocator.held_bytes(), std::stoull(after) * kMiB) << "call " << number << " of " << calls;
    }
  }
}

TEST(NativeSimulationTest, SmallRequestsShareASegmentOfTwoMebibytes) {
  NativeSimulation native;
  for (int i = 0; i < 4096; ++i) (void)native.Allocate(512, kSmall);
  EXPECT_EQ(native.held_bytes(), 2 * kMiB);
  (void)native.Allocate(512, kSmall);
  EXPECT_EQ(native.held_bytes(), 4 * kMiB);
}

TEST(NativeSimulationTest, MediumRequestsShareASegmentOfTwentyMebibytesAndLargeOnesHaveTheirOwn) {
  NativeSimulation native;
  // 2 MiB are left of the first segment: too few for the third. 11 are left of the second, for the fourth.
  Play(native, "+9 =20 +9 =20 +9 =40 +11 =40");
  Play(native, "+31 =72");  // rounded up to 2 MiB
}

TEST(NativeSimulationTest, ALargeBlockIsNotCutForARestOfOneMebibyte) {
  NativeSimulation native;
  Play(native, "a+30 -a +29 +2 =50");
}

TEST(NativeSimulationTest, BestFitTakesTheSmallestBlockAndNeighboursMerge) {
  NativeSimulation native;
  Play(native, "a+40 b+30 -a -b first+20 second+10 +40 =70 -second -first +30 =70");  // the first is of b's 30
}

TEST(NativeSimulationTest, SegmentsNeverMergeAndStreamsShareNothing) {
  NativeSimulation native;
  Play(native, "a+20 b+20 -a -b +40 =80");
  (void)native.Allocate(20 * kMiB, {.stream = 1});
  EXPECT_EQ(native.held_bytes(), 100 * kMiB);
}

TEST(ExpandableSimulationTest, GrowsInPages) {
  ExpandableSimulation expandable;
  Play(expandable, "+30 =40 +9 =40 +9 =60");  // the last asks for 20, of which 1 is there
  (void)expandable.Allocate(512, kSmall);
  EXPECT_EQ(expandable.held_bytes(), 62 * kMiB);
}

TEST(ExpandableSimulationTest, FreeBlocksMergeAcrossWhatWouldHaveBeenSegments) {
  ExpandableSimulation expandable;
  Play(expandable, "a+20 b+20 c+20 -a -b +40 =60 -c +60 =100");  // 20 at the end are there
}

TEST(ExpandableSimulationTest, TheEndOfTheRangeIsTakenLast) {
  ExpandableSimulation expandable;
  // 12 are left at the end, which would be best by size for the 11.
  Play(expandable, "hole+16 +12 -hole +11 +12 =40");
}

TEST(ExpandableSimulationTest, CutsRestsThatNativeKeepsWhole) {
  ExpandableSimulation expandable;
  NativeSimulation native;
  for (SimulatedAllocator* allocator :
       {static_cast<SimulatedAllocator*>(&expandable), static_cast<SimulatedAllocator*>(&native)}) {
    allocator->Free(allocator->Allocate(20 * kMiB, kLarge));
    for (int i = 0; i < 2; ++i) (void)allocator->Allocate(10 * kMiB - kMiB / 2, kLarge);
    (void)allocator->Allocate(kMiB + 512, kLarge);
  }
  EXPECT_EQ(native.held_bytes(), 40 * kMiB);
  EXPECT_EQ(expandable.held_bytes(), 40 * kMiB);
}

// Pages of 20 MiB: a has 30 MiB from the first one on, then come 8 of b and 22 of c.
TEST(ExpandableSimulationTest, EmptiedCachesKeepPagesWithABlockAndTheirAddressesAreMappedAgain) {
  ExpandableSimulation expandable;
  const auto a = expandable.Allocate(30 * kMiB, kLarge);
  const auto b = expandable.Allocate(8 * kMiB, kLarge);
  const auto c = expandable.Allocate(22 * kMiB, kLarge);
  EXPECT_EQ(expandable.held_bytes(), 60 * kMiB);
  expandable.EmptyCaches();
  EXPECT_EQ(expandable.held_bytes(), 60 * kMiB) << "no page is free";
  expandable.Free(a);
  expandable.EmptyCaches();
  EXPECT_EQ(expandable.held_bytes(), 40 * kMiB) << "b keeps the second page";
  const auto again = expandable.Allocate(16 * kMiB, kLarge);
  EXPECT_EQ(expandable.PlaceOf(again).address, 0u);
  EXPECT_EQ(expandable.held_bytes(), 60 * kMiB);
  for (const auto block : {again, b, c}) expandable.Free(block);
  expandable.EmptyCaches();
  EXPECT_EQ(expandable.held_bytes(), 0u);
  (void)expandable.Allocate(70 * kMiB, kLarge);
  EXPECT_EQ(expandable.held_bytes(), 80 * kMiB) << "of the addresses of all three";
}

TEST(SimulateRunTest, FollowsTheTraceWithItsStreamsAndCaptures) {
  const Trace trace = TraceFromScript("+a=20971520 -a +b=20971520 +c=20971520@1 I +d=20971520! -b");
  const DeviceTrace device = BuildLifetimes(trace).value()[0];
  NativeSimulation native;
  EXPECT_EQ(SimulateRun(device, native), 60 * kMiB);
}

// A block of 30 MiB does not fit into a segment of 20; one of 20 does into one of 30. What outlives its iteration is
// not played twice.
TEST(SimulateRunTest, AnIterationCanBePlayedBeforeTheFirst) {
  const TracedRank traced = TakeTrace(TraceFromScript("I +a=20971520 -a I +b=31457280 +k=41943040 -b I -k")).value();
  const DeviceTrace& device = traced.devices.at(0);
  const std::vector<Segment>& segments = traced.segmentation.segments;
  NativeSimulation as_it_came;
  EXPECT_EQ(SimulateRun(device, as_it_came), 90 * kMiB);
  NativeSimulation largest_first;
  const Rehearsal second{segments.at(1).begin_event, segments.at(2).begin_event, segments.at(2).end_event};
  EXPECT_EQ(SimulateRun(device, largest_first, {}, second), 70 * kMiB);
}

struct Held {
  double native = 0;
  double expandable = 0;
};

Held Simulated(const char* name) {
  const DeviceTrace device = BuildLifetimes(ReadCorpus(name)).value()[0];
  NativeSimulation native;
  ExpandableSimulation expandable;
  const auto gib = [](Bytes bytes) { return static_cast<double>(bytes) / static_cast<double>(kGiB); };
  return {gib(SimulateRun(device, native)), gib(SimulateRun(device, expandable))};
}

// The figures are torch's own, of the same runs on an H200, given to 0.01 GiB.
// torch.cuda.graph empties caches: the activations before are not held beside the graph's pool.
TEST(SimulateRunTest, CachesAreEmptiedBeforeCaptures) {
  const TracedRank traced =
      TakeTrace(TraceFromScript("+a=41943040 -a I C0 +b=31457280!1 -b C0- C1 +c=31457280!1 -c C1-")).value();
  const DeviceTrace& device = traced.devices.at(0);
  const auto simulated = [&](SimulatedAllocator&& allocator, std::vector<std::uint64_t> emptied) {
    return SimulateRun(device, allocator, emptied);
  };
  std::vector<std::uint64_t> begins;
  for (const GraphCapture& capture : FindGraphCaptures(traced, device).captures) begins.push_back(capture.begin);
  ASSERT_EQ(begins.size(), 2u);
  EXPECT_EQ(simulated(NativeSimulation(), {}), 70 * kMiB);
  EXPECT_EQ(simulated(NativeSimulation(), begins), 40 * kMiB) << "the pool keeps its 30 MiB for the second capture";
  EXPECT_EQ(simulated(ExpandableSimulation(), {}), 80 * kMiB);
  EXPECT_EQ(simulated(ExpandableSimulation(), begins), 40 * kMiB);
}

TEST(SimulateRunTest, AgreesWithRecordedRunsOfOneStream) {
  const Held dense = Simulated("gpt_dense");
  EXPECT_NEAR(dense.native, 36.87, 0.006);
  EXPECT_NEAR(dense.expandable, 35.80, 0.006);
  const Held moe = Simulated("gpt_moe16");
  EXPECT_NEAR(moe.native, 79.76, 0.006);
  EXPECT_NEAR(moe.expandable, 76.33, 0.006);
}

// These ran on several streams, whose pools share nothing; the recordings do not say which request was on which.
TEST(SimulateRunTest, IsNearWhereTheRecordingHasNoStreams) {
  const Held experts = Simulated("megatron_moe_ep2_rank0");
  EXPECT_NEAR(experts.native, 34.83, 0.002 * 34.83);
  EXPECT_NEAR(experts.expandable, 31.02, 0.006);
  const Held pipeline = Simulated("megatron_vpp_rank0");
  EXPECT_NEAR(pipeline.native, 39.54, 0.03 * 39.54);
  EXPECT_NEAR(pipeline.expandable, 39.61, 0.05 * 39.61);
}

}  // namespace
}  // namespace stalloc::planner
