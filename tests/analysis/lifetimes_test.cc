#include "planner/analysis/lifetimes.h"

#include <gtest/gtest.h>

#include "planner/analysis/traced_rank.h"
#include "tests/analysis/trace_script.h"

namespace stalloc::planner {
namespace {

std::vector<DeviceTrace> Build(std::string_view script) {
  const Trace trace = TraceFromScript(script);
  return BuildLifetimes(trace).value();
}

TEST(LifetimesTest, CountsTimeInRequestsOfTheSegment) {
  const DeviceTrace device = Build("+w=100 I +a=512 +b=513 -a +c=512 -b I -c")[0];
  ASSERT_EQ(device.allocations.size(), 4u);
  const Allocation& a = device.allocations[1];
  EXPECT_EQ(a.segment, 1u);
  EXPECT_EQ(a.ordinal, 0u);
  EXPECT_EQ(a.free_segment, 1u);
  EXPECT_EQ(a.free_ordinal, 2u);  // shares no bytes with b (1), may share with c (2)
  EXPECT_EQ(device.allocations[2].bytes, 1024u);
  EXPECT_EQ(device.allocations[2].free_ordinal, 3u);
  const Allocation& c = device.allocations[3];
  EXPECT_EQ(c.free_segment, 2u);
  EXPECT_EQ(c.free_ordinal, 0u);
  EXPECT_FALSE(device.allocations[0].freed());
  EXPECT_EQ(device.allocations[0].bytes, 512u);
}

TEST(LifetimesTest, FencedRequestsTakeNoTime) {
  const DeviceTrace device = Build("I +a=512 (eval +e=512 -e -a ) +b=512")[0];
  EXPECT_TRUE(device.allocations[1].fenced);
  EXPECT_EQ(device.allocations[1].ordinal, kNone);
  EXPECT_EQ(device.allocations[0].free_ordinal, 1u);
  EXPECT_EQ(device.segments[1].allocations.size(), 2u);
  EXPECT_EQ(device.allocations[2].ordinal, 1u);
}

TEST(LifetimesTest, TellsBlocksOfOtherStreamsAndThoseUsedByThem) {
  const DeviceTrace device = Build("I +a=512 +b=512@1 +c=512! ~a@1 ~b@1 -a -b -c")[0];
  EXPECT_TRUE(device.allocations[0].foreign_stream);
  EXPECT_FALSE(device.allocations[1].foreign_stream);
  EXPECT_EQ(device.allocations[1].stream, 1u);
}

TEST(LifetimesTest, WhatTheEngineNeverSeesIsNoPartOfAScript) {
  const DeviceTrace device = Build("I +a=512 +c=512! +b=512 -a -b -c")[0];
  EXPECT_TRUE(device.allocations[1].outside);
  EXPECT_FALSE(device.allocations[1].fenced);
  EXPECT_EQ(device.allocations[1].ordinal, kNone);
  EXPECT_EQ(device.allocations[2].ordinal, 1u);
  EXPECT_EQ(device.segments[1].allocations.size(), 2u);
}

TEST(LifetimesTest, DevicesAreSeparateAndShareTheMarks) {
  const std::vector<DeviceTrace> devices = Build("+a=512 D1 +b=512 I +c=512 D0 +d=512 F0 I H=4096");
  ASSERT_EQ(devices.size(), 2u);
  EXPECT_EQ(devices[0].device, 0);
  EXPECT_EQ(devices[1].device, 1);
  EXPECT_EQ(devices[1].segments[1].allocations.size(), 1u);
  ASSERT_EQ(devices[1].segments[1].phases.size(), 1u);
  EXPECT_EQ(devices[1].segments[1].phases[0].first_entry, 1u);
  EXPECT_EQ(devices[0].held_peak_bytes, 4096u);
  EXPECT_EQ(devices[1].held_peak_bytes, 0u);
}

TEST(LifetimesTest, ChunksOfAnySizeAddUpToTheWhole) {
  const Trace trace = TraceFromScript("+w=100 I F0 +a=512 D1 +b=7@1 ~a@1 (eval +e=9 -e ) B0 -a O I F0 +c=8 H=77 -b I");
  const TracedRank whole = TakeTrace(trace).value();
  LifetimeBuilder builder;
  Trace chunk = trace;
  for (const TraceEvent& event : trace.events) {
    chunk.events = {event};
    ASSERT_TRUE(builder.Take(chunk).ok());
  }
  const TracedRank pieces = FinishReading(std::move(builder), chunk);
  EXPECT_EQ(pieces.events, trace.events.size());
  EXPECT_TRUE(pieces.head.events.empty());
  ASSERT_EQ(pieces.devices.size(), whole.devices.size());
  ASSERT_EQ(pieces.segmentation.segments.size(), whole.segmentation.segments.size());
  for (std::size_t d = 0; d < whole.devices.size(); ++d) {
    ASSERT_EQ(pieces.devices[d].allocations.size(), whole.devices[d].allocations.size());
    for (std::size_t i = 0; i < whole.devices[d].allocations.size(); ++i) {
      const Allocation& expected = whole.devices[d].allocations[i];
      const Allocation& found = pieces.devices[d].allocations[i];
      EXPECT_EQ(found.event, expected.event);
      EXPECT_EQ(found.free_event, expected.free_event);
      EXPECT_EQ(found.ordinal, expected.ordinal);
      EXPECT_EQ(found.requested(), expected.requested());
      EXPECT_EQ(found.outside, expected.outside);
    }
    for (std::size_t s = 0; s < whole.devices[d].segments.size(); ++s) {
      EXPECT_EQ(pieces.devices[d].segments[s].phases.size(), whole.devices[d].segments[s].phases.size());
    }
  }
}

TEST(LifetimesTest, KeepsWhatWasAskedFor) {
  const std::vector<DeviceTrace> devices = Build("+a=0 +b=1 +c=512 +d=513");
  const auto& allocations = devices[0].allocations;
  EXPECT_EQ(allocations[0].requested(), 0u);
  EXPECT_EQ(allocations[0].bytes, 512u);
  EXPECT_EQ(allocations[1].requested(), 1u);
  EXPECT_EQ(allocations[2].requested(), 512u);
  EXPECT_EQ(allocations[3].requested(), 513u);
  EXPECT_EQ(allocations[3].bytes, 1024u);
}

TEST(LifetimesTest, RefusesReferencesOutsideTheTrace) {
  Trace trace = TraceFromScript("I +a=512 -a");
  Trace twice = trace;
  twice.events.push_back(twice.events.back());
  EXPECT_FALSE(BuildLifetimes(twice).ok());
  trace.events.back().allocation = 7;
  const auto lifetimes = BuildLifetimes(trace);
  ASSERT_FALSE(lifetimes.ok());
  EXPECT_NE(lifetimes.status().message().find("event 2"), absl::string_view::npos);
}

}  // namespace
}  // namespace stalloc::planner
