#include "planner/report/unused_spans.h"

#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "tests/report/facts_fixture.h"

namespace stalloc::planner {
namespace {

// Small blocks that come and go: events to pass the time, twice as many as `blocks`.
std::string Pass(int blocks) { return Repeat("+z=512 -z ", blocks); }

// A script, and who uses its blocks: {allocation, events before, operation}.
struct Used {
  Used(const std::string& script, const std::vector<BlockUse>& recorded)
      : facts(script), uses(facts.traced(), facts->device, recorded) {}
  [[nodiscard]] UnusedView View(std::size_t most = 10) const { return ViewUnused(*facts, uses, most); }
  const ScriptFacts facts;
  const BlockUses uses;
};

using Span = std::tuple<std::uint32_t, std::string, std::uint32_t, std::uint32_t>;
std::vector<Span> Spans(const Used& used) {
  std::vector<Span> found;
  for (const UnusedSpan& span : FindUnusedSpans(*used.facts, used.uses, WhatIsLong(*used.facts))) {
    found.push_back({span.block, UnusedKindName(span.kind), span.begin, span.end});
  }
  return found;
}

// Event 0 allocates a, 1 to 40 pass, b is at 41 and freed at 42, 43 to 82 pass, a is freed at 83.
const std::string kTwo = "+a=65536 " + Pass(20) + "+b=32768 -b " + Pass(20) + "-a ";

TEST(UnusedSpansTest, BeforeTheFirstBetweenTwoAndAfterTheLastUse) {
  EXPECT_EQ(Spans(Used(kTwo, {{0, 1, 0}, {0, 83, 0}})), (std::vector<Span>{{0, "idle", 1, 82}}));
  EXPECT_EQ(Spans(Used(kTwo, {{0, 42, 0}, {0, 43, 0}})), (std::vector<Span>{{0, "early", 0, 41}, {0, "late", 43, 83}}));
}

TEST(UnusedSpansTest, ShortOnesAndBlocksWithoutUsesHaveNoVerdict) {
  EXPECT_EQ(Spans(Used(kTwo, {})), std::vector<Span>{});
  EXPECT_EQ(Spans(Used(kTwo, {{0, 10, 0}, {0, 20, 0}, {0, 34, 0}, {0, 48, 0}, {0, 60, 0}, {0, 70, 0}})),
            std::vector<Span>{});
}

TEST(UnusedSpansTest, OneThatIsNeverFreedIsNotLate) {
  EXPECT_EQ(Spans(Used("+a=65536 " + Pass(40), {{0, 1, 0}})), std::vector<Span>{});
}

TEST(UnusedSpansTest, TheLastOneOfAVariableIsAsLateAsItsSisters) {
  // Events 0 and 42 allocate, 41 frees the first; both are used once.
  const Used used("+a=65536 " + Pass(20) + "-a +b=65536 " + Pass(20), {{0, 1, 7}, {21, 43, 7}});
  EXPECT_EQ(Spans(used), (std::vector<Span>{{0, "late", 1, 41}, {21, "late", 43, 83}}));
  EXPECT_EQ(used.View().late_peak, 64 * kKiB);
  const Used other("+a=65536 " + Pass(20) + "-a +b=65536 " + Pass(20), {{0, 1, 7}, {21, 43, 8}});
  EXPECT_EQ(Spans(other), (std::vector<Span>{{0, "late", 1, 41}})) << "another operation: another variable";
}

TEST(UnusedSpansTest, CapturedOnesHaveNoVerdict) {
  EXPECT_EQ(Spans(Used("+a=65536! " + Pass(40) + "-a", {{0, 1, 0}})), std::vector<Span>{});
}

// At its peak the run has a and b. The block that passes the time is there, too.
TEST(UnusedSpansTest, ThePeakIsPlayedAgain) {
  const UnusedView idle = Used(kTwo, {{0, 1, 0}, {0, 83, 0}}).View();
  EXPECT_EQ(idle.idle_peak, 64 * kKiB);  // where a is used
  EXPECT_EQ(idle.idle_moved, 64 * kKiB);
  EXPECT_EQ(idle.early_and_late_peak, 96 * kKiB);
  ASSERT_EQ(idle.groups.size(), 1u);
  EXPECT_EQ(idle.groups[0].at_peak, 64 * kKiB);
  EXPECT_EQ(idle.groups[0].peak, 64 * kKiB);
  EXPECT_EQ(idle.groups[0].ns, 81'000);

  const UnusedView late = Used(kTwo, {{0, 1, 0}, {0, 2, 0}}).View();
  EXPECT_EQ(late.late_peak, 64 * kKiB + 512);  // the first of the passing blocks is there when a is used
  EXPECT_EQ(late.early_peak, 96 * kKiB);

  const UnusedView early = Used(kTwo, {{0, 80, 0}, {0, 83, 0}}).View();
  EXPECT_EQ(early.early_peak, 64 * kKiB + 512);
  EXPECT_EQ(early.late_peak, 96 * kKiB);
  EXPECT_EQ(early.early_and_late_peak, 64 * kKiB + 512);
}

TEST(UnusedSpansTest, WhatIsNeededAtThePeakSavesNothing) {
  const UnusedView view = Used(kTwo, {{0, 42, 0}}).View();
  EXPECT_EQ(view.early_and_late_peak, 96 * kKiB);
  for (const UnusedGroup& group : view.groups) EXPECT_EQ(group.at_peak, 0u);
}

TEST(UnusedSpansTest, LongIsMeasuredByTheIteration) {
  const std::string iteration = "I F0 " + Pass(1000) + "O ";
  const LongSpans least = WhatIsLong(*ScriptFacts("+w=512 " + Repeat(iteration, 3)));
  EXPECT_EQ(least.moved, 20u);  // of 2003 events
  EXPECT_EQ(least.idle, 200u);
}

TEST(UnusedSpansTest, AlikeInLayersThatAreCalledAlike) {
  const std::string layer = "L:blocks.0.up +a=4096 " + Pass(20) + "-a L:blocks.1.up +b=4096 " + Pass(30) + "-b ";
  const ScriptFacts facts("I F0 " + layer);
  std::vector<BlockUse> recorded;
  for (std::uint32_t i = 0; i < facts->device.allocations.size(); ++i) {
    const Allocation& allocation = facts->device.allocations[i];
    if (allocation.bytes == 4096) recorded.push_back({i, allocation.event + std::uint64_t{1}, 0});
  }
  const UnusedView view = ViewUnused(*facts, BlockUses(facts.traced(), facts->device, recorded), 10);
  ASSERT_EQ(view.groups.size(), 1u);
  EXPECT_EQ(view.groups[0].count, 2u);
  EXPECT_EQ(view.groups[0].layers, 2u);
  EXPECT_EQ(view.groups[0].events, 60u);  // of the longer one
  EXPECT_EQ(view.unseen_blocks, 50u);
}

}  // namespace
}  // namespace stalloc::planner
