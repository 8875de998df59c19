#include "planner/analysis/equal_ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "absl/strings/str_replace.h"
#include "planner/packing/portfolio.h"
#include "planner/report/rank_json.h"
#include "tests/analysis/trace_script.h"

namespace stalloc::planner {
namespace {

const std::string kEqualScript = "INIT +w=4096 I F0 +a=1024 +b=2048@1 -a +c=1024 -b -c +s=512 " +
                                 Repeat("I F0 +a=1024 +b=2048@1 -a +c=1024 -b -c ", 3);

TraceKey KeyOfWhole(const Trace& trace) { return KeyOfTrace(*TakeTrace(trace)); }

// The same run on another rank and device, at other times.
Trace Elsewhere(Trace trace) {
  trace.fingerprint.rank = 5;
  trace.fingerprint.local_rank = 1;
  trace.fingerprint.command_line = {"train.py", "--local-rank=1"};
  for (TraceEvent& event : trace.events) {
    event.time_ns = event.time_ns * 3 + 7;
    event.device = event.kind == EventKind::kAlloc ? 1 : event.device;
  }
  for (StreamInfo& stream : trace.streams) {
    stream.device = 1;
    if (stream.handle > 2) stream.handle += 0x1000;
  }
  return trace;
}

Trace TwoStreams() {
  Trace trace = TraceFromScript(kEqualScript);
  trace.fingerprint.world_size = 8;
  trace.streams = {{0, 0, 0}, {1, 0, 0x7f00}};
  return trace;
}

RankResult PlanOfTrace(const Trace& trace) {
  RankPlannerOptions options;
  options.packing.work = 1000;
  return *PlanRank(trace, options, *MakePortfolio());
}

std::string ToldOf(RankReport report) {
  report.seconds = 0;
  for (DeviceReport& device : report.devices) device.packing->seconds = 0;
  return RankJson(report);
}

TEST(EqualRanksTest, WhoseATraceIsAndWhenDoesNotCount) {
  EXPECT_EQ(KeyOfWhole(TwoStreams()), KeyOfWhole(TwoStreams()));
  EXPECT_EQ(KeyOfWhole(TwoStreams()), KeyOfWhole(Elsewhere(TwoStreams())));
}

TEST(EqualRanksTest, HowAPoolsBlocksLieCountsAndNotWhere) {
  const auto key = [](const char* first, const char* second) {
    const std::string places =
        absl::StrReplaceAll("+a=512!1^FIRST +b=512!1^SECOND I +c=512 -c", {{"FIRST", first}, {"SECOND", second}});
    return KeyOfWhole(TraceFromScript(places));
  };
  EXPECT_EQ(key("0", "512"), key("4096", "4608"));
  EXPECT_NE(key("0", "512"), key("0", "1024"));
}

TEST(EqualRanksTest, AllElseCounts) {
  std::set<TraceKey> keys{KeyOfWhole(TwoStreams())};
  std::size_t expected = 1;
  const auto add = [&](const Trace& trace) {
    keys.insert(KeyOfWhole(trace));
    EXPECT_EQ(keys.size(), ++expected);
  };
  const auto edited = [](const char* from, const char* to) {
    Trace trace = TraceFromScript(absl::StrReplaceAll(kEqualScript, {{from, to}}));
    trace.streams = TwoStreams().streams;
    return trace;
  };
  add(edited("+a=1024", "+a=1025"));
  add(edited("+a=1024", "+a=4096"));
  add(edited("-b -c", "-c -b"));
  add(edited("b=2048@1", "b=2048"));
  add(edited("F0", "F1"));
  add(edited("+s=512", "+s=512 ~s@1"));
  add(edited("+s=512", "+s=512!"));
  add(edited("+s=512", "+s=512 (eval )"));
  add(edited("INIT", "INIT L:embedding"));
  add(edited("INIT", "INIT L:embeddings"));
  Trace other = TwoStreams();
  other.complete = !other.complete;
  add(other);
  other = TwoStreams();
  other.live_before = 1;
  add(other);
  other = TwoStreams();
  other.streams[1].handle = 2;  // a default stream
  add(other);
  other = TwoStreams();
  other.texts = {"train.py"};
  add(other);
}

TEST(EqualRanksTest, TheResultOfAnotherIsWhatPlanningWouldGive) {
  const Trace first = TwoStreams();
  const Trace other = Elsewhere(TwoStreams());
  const RankResult of_first = PlanOfTrace(first);
  ASSERT_TRUE(of_first.plan.has_value()) << of_first.plan_status;
  const RankResult taken = ResultOfEqual(of_first, IdentityOf(*TakeTrace(first)), IdentityOf(*TakeTrace(other)));
  const RankResult own = PlanOfTrace(other);
  EXPECT_EQ(ToldOf(taken.report), ToldOf(own.report));
  EXPECT_NE(ToldOf(taken.report), ToldOf(of_first.report));
  EXPECT_EQ(taken.plan->fingerprint, other.fingerprint);
  ASSERT_EQ(taken.plan->devices.size(), 1u);
  EXPECT_EQ(taken.plan->devices[0].device, 1);
  EXPECT_EQ(taken.plan->devices[0].streams, own.plan->devices[0].streams);
  EXPECT_EQ(taken.plan->devices[0].arena_bytes, own.plan->devices[0].arena_bytes);
  EXPECT_TRUE(CheckPlanAgainstTrace(*taken.plan, other).ok());
}

}  // namespace
}  // namespace stalloc::planner
