#include "planner/analysis/graph_needs.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "tests/analysis/trace_script.h"

namespace stalloc::planner {
namespace {

GraphNeeds NeedsOf(const std::string& script) {
  const TracedRank traced = TakeTrace(TraceFromScript(script)).value();
  return FindGraphNeeds(traced, traced.devices.at(0));
}

TEST(GraphNeedsTest, WithoutACaptureThereIsNothing) {
  const GraphNeeds found = NeedsOf("+w=4096 I +a=512!1 -a");
  EXPECT_TRUE(found.graphs.empty());
  EXPECT_EQ(found.peak, 0u);
}

TEST(GraphNeedsTest, ALaunchWritesWhatNoTensorHolds) {
  const GraphNeeds found = NeedsOf("I C0 +a=4096!1 -a C0- +w=1024 R0 R0");
  ASSERT_EQ(found.graphs.size(), 1u);
  EXPECT_EQ(found.graphs[0].pool, 1u);
  EXPECT_EQ(found.graphs[0].launches, 2u);
  EXPECT_EQ(found.graphs[0].dead, 4096u);
  EXPECT_EQ(found.peak, 4096u + 1024);
  EXPECT_EQ(found.torch_then, 1024u);
}

TEST(GraphNeedsTest, OutsideOfItsLaunchWhatItWritesIsNotNeeded) {
  const GraphNeeds found = NeedsOf("I C0 +a=4096!1 -a C0- R0 +w=8192 -w");
  EXPECT_EQ(found.peak, 8192u);
  EXPECT_EQ(found.torch_then, 8192u);
}

// An evaluation of 8192 between the launches of a forward and a backward graph, and one after both.
TEST(GraphNeedsTest, WhatIsCarriedIsNeededUntilTheOtherLaunch) {
  const std::string captures = "I C0 +s=2048!1 C0- C1 +d=4096!1 -d -s C1- +w=1024 ";
  const GraphNeeds between = NeedsOf(captures + "R0 +e=8192 -e R1");
  ASSERT_EQ(between.graphs.size(), 2u);
  EXPECT_EQ(between.graphs[0].carried, 2048u);
  EXPECT_EQ(between.graphs[0].launch, 2048u);
  EXPECT_EQ(between.graphs[1].dead, 4096u);
  EXPECT_EQ(between.graphs[1].launch, 2048u + 4096);
  EXPECT_EQ(between.peak, 1024u + 2048 + 8192);
  EXPECT_EQ(between.torch_then, 1024u + 8192);
  EXPECT_EQ(NeedsOf(captures + "R0 R1 +e=8192 -e").peak, 1024u + 8192);
  EXPECT_EQ(NeedsOf(captures + "R0 R1").peak, 1024u + 2048 + 4096);
}

// Megatron-LM's captures are fenced: evaluations run the same code.
TEST(GraphNeedsTest, CapturesAndLaunchesInsideAFenceAreSeen) {
  const GraphNeeds found = NeedsOf("I (capture C0 +a=4096!1 -a C0- R0 ) +w=1024 R0 R0");
  ASSERT_EQ(found.graphs.size(), 1u);
  EXPECT_EQ(found.graphs[0].launches, 3u);
  EXPECT_EQ(found.graphs[0].dead, 4096u);
  EXPECT_EQ(found.peak, 4096u + 1024);
}

TEST(GraphNeedsTest, AMarkWithoutANumberIsNoGraphs) {
  Trace trace = TraceFromScript("I C0 +a=512!1 -a C0- R0");
  for (Mark& mark : trace.marks) {
    if (mark.name == "CUDA graph 0 replay") mark.name = "CUDA graph replay";
  }
  const TracedRank traced = TakeTrace(std::move(trace)).value();
  const GraphNeeds found = FindGraphNeeds(traced, traced.devices.at(0));
  ASSERT_EQ(found.graphs.size(), 1u);
  EXPECT_EQ(found.graphs[0].launches, 0u);
}

// Launched twice before the other graph is, it waits once.
TEST(GraphNeedsTest, WhatIsCarriedTwiceIsNeededOnce) {
  EXPECT_EQ(NeedsOf("I C0 +s=2048!1 C0- C1 -s C1- R0 R0 +e=4096 -e").peak, 2048u + 4096);
}

// Freed between captures, its bytes went to another block: those that both have count once.
TEST(GraphNeedsTest, BytesThatTwoKeptBlocksHaveCountOnce) {
  const auto peak = [](const std::string& first, const std::string& second) {
    return NeedsOf("I C0 +k=4096!1" + first + " +d=16384!1^8192 -d C0- -k C1 +m=4096!1" + second +
                   " C1- R0 +e=65536 -e")
        .peak;
  };
  EXPECT_EQ(peak("^0", "^0"), 4096u + 65536);
  EXPECT_EQ(peak("^0", "^2048"), 6144u + 65536);
  EXPECT_EQ(peak("^0", "^4096"), 8192u + 65536);
  EXPECT_EQ(peak("", ""), 8192u + 65536) << "not known";
}

TEST(GraphNeedsTest, WhatWasFreedBetweenCapturesOrAskedForOutsideIsNeededForGood) {
  const GraphNeeds found = NeedsOf("I +i=512!1 -i C0 +o=2048!1 C0- -o R0 +e=4096 -e");
  ASSERT_EQ(found.graphs.size(), 1u);
  EXPECT_EQ(found.graphs[0].kept, 2048u);
  EXPECT_EQ(found.peak, 2048u + 4096) << "no more than lived in the pool at a time";
  EXPECT_EQ(found.torch_then, 4096u);
}

// Two pools of which one runs: the other one needs what it keeps.
TEST(GraphNeedsTest, PoolsAreNeededByThemselves) {
  const GraphNeeds found = NeedsOf("I C0 +a=4096!1 -a +k=512!1 C0- C1 +b=8192!2 -b C1- +w=1024 R0 R1");
  EXPECT_EQ(found.graphs[1].pool, 2u);
  EXPECT_EQ(found.peak, 1024u + 512 + 8192);
}

// A MemPool's blocks come and go as all others do.
TEST(GraphNeedsTest, PoolsWithoutACaptureAreAsPyTorchCounts) {
  EXPECT_EQ(NeedsOf("I +m=4096!3 -m C0 +a=512!1 -a C0- +w=4096 R0").peak, 4096u + 512);
}

// Beside 1024 eager bytes the second capture needs 4096 of its own pool, and what the first has kept for good.
TEST(GraphNeedsTest, ACaptureNeedsWhatLivesOutsideAndAllThatPoolsHad) {
  const GraphNeeds found = NeedsOf("+w=1024 I C0 +a=2048!1 -a C0- +x=8192 -x I C1 +b=4096!2 -b C1- I R0 R1 +x=8192 -x");
  EXPECT_EQ(found.capture_peak, 1024u + 2048 + 4096);
  ASSERT_EQ(found.pools.size(), 2u);
  EXPECT_EQ(found.pools[1].number, 2u);
  EXPECT_EQ(found.pools[1].most, 4096u);
  EXPECT_EQ(found.first_segment, 1u);
  EXPECT_EQ(found.last_segment, 2u);
}

// The later capture is what is launched.
TEST(GraphNeedsTest, AGraphThatIsCapturedAgainHasTwoRows) {
  const GraphNeeds found = NeedsOf("I C0 +a=4096!1 -a C0- R0 I C0 +b=512!1 -b C0- +w=8192 R0");
  ASSERT_EQ(found.graphs.size(), 2u);
  EXPECT_EQ(found.graphs[0].launches, 1u);
  EXPECT_EQ(found.graphs[1].launches, 1u);
  EXPECT_EQ(found.peak, 8192u + 512);
}

}  // namespace
}  // namespace stalloc::planner
