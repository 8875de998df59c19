#include "allocator/engine/follow/script_cursor.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "allocator/engine/bytes/occupancy.h"

namespace stalloc {
namespace script_cursor_test {

Mark MarkWith(MarkKind kind, MarkEdge edge = MarkEdge::kBegin, int index = 0, const std::string& name = "") {
  Mark mark;
  mark.kind = kind;
  mark.edge = edge;
  mark.index = index;
  mark.name = name;
  return mark;
}
Mark Iteration(int index) { return MarkWith(MarkKind::kIteration, MarkEdge::kBegin, index); }
Mark Layer(const std::string& name) { return MarkWith(MarkKind::kLayer, MarkEdge::kBegin, 0, name); }
Mark FenceOf(MarkEdge edge, const std::string& name = "eval") { return MarkWith(MarkKind::kFence, edge, 0, name); }
Mark Microbatch(int index, Pass pass = Pass::kForward, int chunk = 0) {
  Mark mark = MarkWith(MarkKind::kMicrobatch, MarkEdge::kBegin, index);
  mark.pass = pass;
  mark.chunk = chunk;
  return mark;
}

// A script of `size` entries with the given phases. Its size tells it from the others.
Script ScriptOfSize(std::size_t size, const std::vector<std::pair<Mark, std::uint32_t>>& phases = {}) {
  Script script;
  script.entries.resize(size);
  for (Entry& entry : script.entries) entry.bytes = entry.min_bytes = entry.max_bytes = 512;
  for (const auto& [mark, first] : phases) script.phases.push_back({mark, first});
  return script;
}

int LiveSize(const ScriptCursor& cursor) { return cursor.script() == nullptr ? -1 : cursor.script()->index().size(); }

TEST(ScriptCursorTest, GoesThroughThePrologueAndThenAroundTheCycle) {
  DevicePlan plan;
  for (const std::size_t size : {10, 11, 12}) plan.prologue.push_back(ScriptOfSize(size));
  for (const std::size_t size : {20, 21}) plan.cycle.push_back(ScriptOfSize(size));
  ScriptCursor cursor(plan);
  EXPECT_EQ(LiveSize(cursor), 10);  // before the first mark: set-up
  std::vector<int> sizes;
  for (int i = 0; i < 7; ++i) {
    EXPECT_TRUE(cursor.OnMark(Iteration(i)));
    sizes.push_back(LiveSize(cursor));
  }
  EXPECT_EQ(sizes, (std::vector<int>{11, 12, 20, 21, 20, 21, 20}));
  EXPECT_EQ(cursor.iterations(), 7u);
}

TEST(ScriptCursorTest, ARunInItsLoopGoesOnWhereItIs) {
  DevicePlan plan;
  for (const std::size_t size : {10, 11}) plan.prologue.push_back(ScriptOfSize(size));
  for (const std::size_t size : {20, 21}) plan.cycle.push_back(ScriptOfSize(size));
  ScriptCursor cursor(plan);
  cursor.StartAt({.iterations = 4});
  EXPECT_EQ(LiveSize(cursor), -1) << "nothing is expected before the next iteration";
  cursor.OnMark(Iteration(0));
  EXPECT_EQ(LiveSize(cursor), 21) << "11, 20, 21, 20 came before";
  EXPECT_EQ(cursor.iterations(), 5u);
}

TEST(ScriptCursorTest, AHooksMarksAreIgnoredFromTheBeginningWhereTheProgramHadPlacedSuch) {
  DevicePlan plan;
  plan.cycle.push_back(ScriptOfSize(20));
  ScriptCursor cursor(plan);
  cursor.StartAt({.iterations = 1, .explicit_kinds = 1u << static_cast<unsigned>(MarkKind::kIteration)});
  Mark by_hook = Iteration(0);
  by_hook.automatic = true;
  EXPECT_FALSE(cursor.OnMark(by_hook));
  EXPECT_TRUE(cursor.OnMark(Iteration(0)));
}

TEST(ScriptCursorTest, CountsMarksAndIgnoresTheirIndex) {
  DevicePlan plan;
  plan.prologue = {ScriptOfSize(10), ScriptOfSize(11)};
  plan.cycle = {ScriptOfSize(20)};
  ScriptCursor resumed(plan);
  EXPECT_TRUE(resumed.OnMark(Iteration(1000)));
  EXPECT_EQ(LiveSize(resumed), 11);
  EXPECT_TRUE(resumed.OnMark(Iteration(1001)));
  EXPECT_EQ(LiveSize(resumed), 20);
}

TEST(ScriptCursorTest, WithoutAPrologueTheCycleStartsAtTheFirstMark) {
  DevicePlan plan;
  plan.cycle = {ScriptOfSize(20), ScriptOfSize(21)};
  ScriptCursor cursor(plan);
  EXPECT_EQ(LiveSize(cursor), -1);
  EXPECT_FALSE(cursor.OnMark(Layer("a")));
  cursor.OnMark(Iteration(0));
  EXPECT_EQ(LiveSize(cursor), 20);
  cursor.OnMark(Iteration(1));
  EXPECT_EQ(LiveSize(cursor), 21);
}

TEST(ScriptCursorTest, AMarkMovesToTheNextEqualPhaseAndElseFromTheStart) {
  DevicePlan plan;
  plan.cycle = {ScriptOfSize(100, {{Iteration(5), 3}, {Layer("a"), 10}, {Layer("b"), 20}, {Layer("a"), 30}})};
  ScriptCursor cursor(plan);
  EXPECT_TRUE(cursor.OnMark(Iteration(9)));
  EXPECT_EQ(cursor.entry(), 3);
  EXPECT_TRUE(cursor.OnMark(Layer("a")));
  EXPECT_EQ(cursor.entry(), 10);
  EXPECT_TRUE(cursor.OnMark(Layer("a")));
  EXPECT_EQ(cursor.entry(), 30);
  EXPECT_TRUE(cursor.OnMark(Layer("b")));  // behind: from the start
  EXPECT_EQ(cursor.entry(), 20);
  EXPECT_TRUE(cursor.OnMark(Layer("a")));
  EXPECT_EQ(cursor.entry(), 30);
  EXPECT_FALSE(cursor.OnMark(Layer("c")));  // not in the script
  EXPECT_EQ(cursor.entry(), 30);
}

TEST(ScriptCursorTest, MicrobatchesAreToldApartByPassChunkAndIndex) {
  DevicePlan plan;
  plan.cycle = {ScriptOfSize(100, {{Microbatch(0), 10},
                                   {Microbatch(1), 20},
                                   {Microbatch(1, Pass::kBackward), 30},
                                   {Microbatch(1, Pass::kForward, 2), 40}})};
  ScriptCursor cursor(plan);
  cursor.OnMark(Iteration(0));
  Mark named = Microbatch(1);
  named.name = "anything";
  EXPECT_TRUE(cursor.OnMark(named));
  EXPECT_EQ(cursor.entry(), 20);
  EXPECT_TRUE(cursor.OnMark(Microbatch(1, Pass::kForward, 2)));
  EXPECT_EQ(cursor.entry(), 40);
  EXPECT_TRUE(cursor.OnMark(Microbatch(1, Pass::kBackward)));
  EXPECT_EQ(cursor.entry(), 30);
  EXPECT_FALSE(cursor.OnMark(Microbatch(1, Pass::kBackward, 2)));
}

TEST(ScriptCursorTest, MicrobatchesThatThePlanLacksAreFollowedAsEarlierOnesInTurn) {
  DevicePlan plan;
  plan.cycle = {ScriptOfSize(100, {{Microbatch(0), 10},
                                   {Microbatch(1), 20},
                                   {Microbatch(2), 30},
                                   {Microbatch(2, Pass::kBackward), 40},
                                   {Microbatch(0, Pass::kForward, 1), 50}})};
  ScriptCursor cursor(plan);
  cursor.OnMark(Iteration(0));
  const auto entry_at = [&](const Mark& mark) { return cursor.OnMark(mark) ? cursor.entry() : -1; };
  std::vector<std::int32_t> entries;
  for (int index = 1; index < 7; ++index) entries.push_back(entry_at(Microbatch(index)));
  EXPECT_EQ(entries, (std::vector<std::int32_t>{20, 30, 20, 30, 20, 30}));
  EXPECT_EQ(entry_at(Microbatch(3, Pass::kForward, 1)), 50) << "of one micro-batch";
  EXPECT_EQ(cursor.Expected(), (std::pair<std::int32_t, std::int32_t>(50, 100)));
  EXPECT_EQ(entry_at(Microbatch(1, Pass::kBackward)), -1) << "the plan has later ones";
  EXPECT_EQ(entry_at(Microbatch(5, Pass::kWeight)), -1);
}

// A hook marks the optimizer's step after the script has marked it and has already made requests: on a GPU this once
// threw the cursor back by 156 requests, and persistent blocks took the places of temporary ones.
TEST(ScriptCursorTest, AHooksMarkIsNotTheScriptsOwn) {
  const Mark optimizer = MarkWith(MarkKind::kOptimizer, MarkEdge::kBegin, 0);
  DevicePlan plan;
  plan.cycle = {ScriptOfSize(100, {{Microbatch(0), 10}, {optimizer, 20}})};
  ScriptCursor cursor(plan);
  cursor.OnMark(Iteration(0));
  EXPECT_TRUE(cursor.OnMark(optimizer));
  Mark by_hook = optimizer;
  by_hook.automatic = true;
  EXPECT_FALSE(cursor.OnMark(by_hook));
}

TEST(ScriptCursorTest, AMarkSeenTwiceInARowDoesNotGoBack) {
  DevicePlan plan;
  plan.cycle = {ScriptOfSize(100, {{Microbatch(0), 10}, {Microbatch(1), 20}})};
  ScriptCursor cursor(plan);
  cursor.OnMark(Iteration(0));
  EXPECT_TRUE(cursor.OnMark(Microbatch(1)));
  EXPECT_FALSE(cursor.OnMark(Microbatch(1)));
  EXPECT_TRUE(cursor.OnMark(Microbatch(0)));  // a step that is run again does
  EXPECT_EQ(cursor.entry(), 10);
}

TEST(ScriptCursorTest, TheEndOfAnIterationIsAPhase) {
  DevicePlan plan;
  plan.cycle = {ScriptOfSize(100, {{Iteration(0), 0}, {MarkWith(MarkKind::kIteration, MarkEdge::kEnd, 0), 80}})};
  ScriptCursor cursor(plan);
  cursor.OnMark(Iteration(0));
  EXPECT_TRUE(cursor.OnMark(MarkWith(MarkKind::kIteration, MarkEdge::kEnd, 17)));
  EXPECT_EQ(cursor.entry(), 80);
  EXPECT_EQ(cursor.iterations(), 1u);
}

TEST(ScriptCursorTest, InsideAFenceNothingMoves) {
  DevicePlan plan;
  plan.cycle = {ScriptOfSize(100, {{Layer("a"), 10}, {Layer("b"), 20}})};
  ScriptCursor cursor(plan);
  cursor.OnMark(Iteration(0));
  cursor.OnMark(Layer("a"));
  EXPECT_FALSE(cursor.OnMark(FenceOf(MarkEdge::kBegin)));
  EXPECT_TRUE(cursor.fenced());
  EXPECT_FALSE(cursor.OnMark(Layer("b")));
  EXPECT_FALSE(cursor.OnMark(Iteration(1)));
  EXPECT_FALSE(cursor.OnMark(FenceOf(MarkEdge::kBegin, "save")));  // nested
  EXPECT_FALSE(cursor.OnMark(FenceOf(MarkEdge::kEnd, "save")));
  EXPECT_TRUE(cursor.fenced());
  EXPECT_FALSE(cursor.OnMark(FenceOf(MarkEdge::kEnd)));
  EXPECT_FALSE(cursor.fenced());
  EXPECT_EQ(cursor.entry(), 10);
  EXPECT_EQ(cursor.iterations(), 1u);
  EXPECT_FALSE(cursor.OnMark(FenceOf(MarkEdge::kEnd)));  // an end too many
  EXPECT_FALSE(cursor.fenced());
}

TEST(ScriptCursorTest, WhatAResumedRunLoadsBeforeTheLoopIsInTheFirstIteration) {
  Mark begin = Layer("optimizer_state");
  begin.pass = Pass::kOther;
  Mark end = begin;
  end.edge = MarkEdge::kEnd;
  Mark in_set_up = Layer("warm-up");
  in_set_up.pass = Pass::kOther;
  Mark forward = Layer("moe");
  forward.pass = Pass::kForward;
  DevicePlan plan;
  plan.prologue = {ScriptOfSize(10, {{in_set_up, 4}}), ScriptOfSize(11, {{forward, 1}, {begin, 5}, {end, 9}})};
  plan.cycle = {ScriptOfSize(20)};
  ScriptCursor cursor(plan);
  EXPECT_FALSE(cursor.OnMark(forward));  // a pass is part of an iteration
  EXPECT_EQ(LiveSize(cursor), 10);
  EXPECT_TRUE(cursor.OnMark(begin));
  EXPECT_EQ(LiveSize(cursor), 11);
  EXPECT_EQ(cursor.entry(), 5);
  EXPECT_EQ(cursor.Expected(), std::pair(5, 9));
  EXPECT_TRUE(cursor.OnMark(end));
  EXPECT_EQ(cursor.iterations(), 0u);
  EXPECT_TRUE(cursor.OnMark(in_set_up));
  EXPECT_EQ(LiveSize(cursor), 10);
  EXPECT_EQ(cursor.entry(), 4);
  EXPECT_TRUE(cursor.OnMark(Iteration(7)));
  EXPECT_EQ(LiveSize(cursor), 11);
  EXPECT_EQ(cursor.iterations(), 1u);
}

TEST(ScriptCursorTest, MarksOfHooksAreIgnoredOnceTheScriptPlacesItsOwn) {
  DevicePlan plan;
  Mark layer_by_hook = Layer("a");
  layer_by_hook.automatic = true;
  plan.prologue = {ScriptOfSize(10), ScriptOfSize(11)};
  plan.cycle = {ScriptOfSize(20, {{layer_by_hook, 5}})};
  Mark by_hook = Iteration(0);
  by_hook.automatic = true;
  ScriptCursor cursor(plan);
  EXPECT_TRUE(cursor.OnMark(by_hook));
  EXPECT_EQ(cursor.iterations(), 1u);
  EXPECT_TRUE(cursor.OnMark(Iteration(0)));
  EXPECT_FALSE(cursor.OnMark(by_hook));
  EXPECT_EQ(cursor.iterations(), 2u);
  EXPECT_TRUE(cursor.OnMark(layer_by_hook));  // of another kind
  EXPECT_EQ(cursor.entry(), 5);
}

TEST(LoadedScriptTest, KnowsThePlacesOfItsEntries) {
  Script script = ScriptOfSize(2);
  script.entries[1].slot = 0;
  script.entries[1].stream = 2;
  DevicePlan plan;
  plan.cycle = {script};
  const LoadedScript loaded(script, {Slot{5 * 512, 3 * 512}}, {LiveRecord::kPrivate}, PlanStreams(plan));
  EXPECT_EQ(loaded.PlaceOf(0).granules, 0u);
  EXPECT_EQ(loaded.PlaceOf(1).granule, 5u);
  EXPECT_EQ(loaded.PlaceOf(1).granules, 3u);
  EXPECT_EQ(loaded.PlaceOf(1).stream, 1u) << "the plan's second";
  EXPECT_EQ(loaded.PlaceOf(1).flags, LiveRecord::kPrivate);
}

// A trace that began late has in its set-up what a run from scratch makes in its first iteration: here by two
// optimizers.
TEST(ScriptCursorTest, WhatTheFirstIterationMakesIsInTheSetUpOfALateTrace) {
  Mark begin = Layer("optimizer_state");
  begin.pass = Pass::kOther;
  Mark end = begin;
  end.edge = MarkEdge::kEnd;
  const Mark optimizer = MarkWith(MarkKind::kOptimizer);
  DevicePlan plan;
  plan.prologue = {ScriptOfSize(50, {{begin, 10}, {end, 20}, {begin, 20}, {end, 40}})};
  plan.cycle = {ScriptOfSize(100, {{optimizer, 60}, {begin, 62}, {end, 62}, {begin, 70}, {end, 70}})};
  ScriptCursor cursor(plan);
  cursor.OnMark(Iteration(0));
  cursor.OnMark(optimizer);
  EXPECT_TRUE(cursor.OnMark(begin, 62));
  EXPECT_EQ(LiveSize(cursor), 50);
  EXPECT_EQ(cursor.entry(), 10);
  EXPECT_EQ(cursor.Expected(), std::pair(10, 20));
  EXPECT_TRUE(cursor.OnMark(end, 20));
  EXPECT_EQ(LiveSize(cursor), 100);
  EXPECT_EQ(cursor.entry(), 62);
  EXPECT_TRUE(cursor.OnMark(begin, 70));
  EXPECT_EQ(LiveSize(cursor), 50);
  EXPECT_EQ(cursor.entry(), 20);
  EXPECT_TRUE(cursor.OnMark(end, 40));
  EXPECT_EQ(cursor.entry(), 70);
  EXPECT_TRUE(cursor.OnMark(begin, 70));  // once more: the set-up has no third one
  EXPECT_EQ(LiveSize(cursor), 100);
  cursor.OnMark(Iteration(1));
  cursor.OnMark(optimizer);
  EXPECT_TRUE(cursor.OnMark(begin, 62));
  EXPECT_EQ(LiveSize(cursor), 100) << "in the first iteration alone";
}

// The first optimizer's step ends the set-up where nobody marks iterations; the second one's is in the first of them.
TEST(ScriptCursorTest, WhatTheFirstIterationMakesItselfIsNotInTheSetUp) {
  Mark begin = Layer("optimizer_state");
  begin.pass = Pass::kOther;
  Mark end = begin;
  end.edge = MarkEdge::kEnd;
  DevicePlan plan;
  plan.prologue = {ScriptOfSize(50, {{begin, 10}, {end, 20}}), ScriptOfSize(60, {{begin, 30}, {end, 40}})};
  plan.cycle = {ScriptOfSize(100)};
  ScriptCursor cursor(plan);
  EXPECT_TRUE(cursor.OnMark(begin));
  EXPECT_EQ(LiveSize(cursor), 50);
  cursor.OnMark(end);
  cursor.OnMark(Iteration(0));
  EXPECT_TRUE(cursor.OnMark(begin, 30));
  EXPECT_EQ(LiveSize(cursor), 60);
  EXPECT_EQ(cursor.entry(), 30);
}

TEST(ScriptCursorTest, FromTheSetUpTheRunComesBackToWhereItWas) {
  Mark begin = Layer("optimizer_state");
  begin.pass = Pass::kOther;
  Mark end = begin;
  end.edge = MarkEdge::kEnd;
  DevicePlan plan;
  plan.prologue = {ScriptOfSize(50, {{begin, 10}, {end, 20}})};
  plan.cycle = {ScriptOfSize(100, {{Microbatch(0), 30}})};
  ScriptCursor cursor(plan);
  cursor.OnMark(Iteration(0));
  EXPECT_TRUE(cursor.OnMark(begin, 27));
  EXPECT_TRUE(cursor.OnMark(end, 20)) << "which the iteration's script does not have";
  EXPECT_EQ(LiveSize(cursor), 100);
  EXPECT_EQ(cursor.entry(), 27);
  EXPECT_TRUE(cursor.OnMark(Microbatch(0), 29));
  EXPECT_EQ(cursor.entry(), 30);

  ScriptCursor cut_short(plan);
  cut_short.OnMark(Iteration(0));
  EXPECT_TRUE(cut_short.OnMark(begin, 27));
  EXPECT_TRUE(cut_short.OnMark(Iteration(1), 15));
  EXPECT_EQ(LiveSize(cut_short), 100);
}

}  // namespace script_cursor_test
}  // namespace stalloc
