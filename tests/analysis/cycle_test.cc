#include "planner/analysis/cycle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/analysis/trace_script.h"

namespace stalloc::planner {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

absl::StatusOr<Cycle> Find(const std::string& script, bool complete = true) {
  const Trace trace = TraceFromScript(script);
  const Segmentation cut = CutAtMarks(trace);
  return FindCycle(BuildLifetimes(trace).value()[0], cut, complete);
}

// Ten requests; the first iteration leaves optimizer state behind as well.
constexpr char kBody[] =
    "+a=1024 +b=2048 +c=4096 -b -c +b=2048 +c=4096 -c -b +d=8192 -d +e=512 +f=512 -e -f +g=600 -g -a +h=700 -h";

TEST(CycleTest, LazyStateMakesTheFirstIterationWarmUp) {
  const std::string body(kBody);
  const Cycle cycle = *Find("+w=512 I " + body + " +s0=512 +s1=512 +s2=512 I " + body + " I " + body);
  EXPECT_EQ(cycle.warmup, 1u);
  EXPECT_EQ(cycle.period, 1u);
  EXPECT_EQ(cycle.complete, 3u);
  EXPECT_FALSE(cycle.broken_off());
  EXPECT_THAT(cycle.warnings, IsEmpty());
}

TEST(CycleTest, IterationsThatAreAlikeFromTheStartNeedNoWarmUp) {
  const Cycle cycle = *Find("+w=512 " + Repeat(std::string("I ") + kBody, 3));
  EXPECT_EQ(cycle.warmup, 0u);
}

TEST(CycleTest, TwoWarmUpIterationsAreFound) {
  const std::string body(kBody);
  const Cycle cycle = *Find("I " + body + " +s=99999 I " + body + " +t=88888 " + Repeat("I " + body, 3));
  EXPECT_EQ(cycle.warmup, 2u);
}

TEST(CycleTest, AFewRequestsAfterTheLastMarkAreABrokenOffIteration) {
  const Cycle cycle = *Find(Repeat(std::string("I? ") + kBody, 3) + "I? +a=512 -a");
  EXPECT_EQ(cycle.complete, 3u);
  EXPECT_EQ(cycle.traced, 4u);
  EXPECT_TRUE(cycle.broken_off());
  EXPECT_THAT(cycle.warnings, ElementsAre(HasSubstr("broken off after 1 requests")));
}

TEST(CycleTest, AMissingEndMarkTellsThatTheLastIterationWasBrokenOff) {
  const std::string body(kBody);
  EXPECT_TRUE(Find("I " + body + " E I " + body + " E I " + body)->broken_off());
  EXPECT_FALSE(Find("I " + body + " E I " + body + " E I " + body + " E")->broken_off());
}

TEST(CycleTest, AKilledProcessBreaksOffEvenAnAlmostCompleteIteration) {
  std::string shorter(kBody);
  shorter.resize(shorter.rfind("+h"));
  const std::string script = Repeat(std::string("I ") + kBody, 3) + "I " + shorter;
  EXPECT_TRUE(Find(script, false)->broken_off());
}

TEST(CycleTest, TwoOptimizersInTurnHaveAPeriodOfTwo) {
  const std::string generator = "I? +a=1024 +b=2048 -a +c=4096 -b -c";
  const std::string critic = "I? +x=5120 +y=7168 -x -y +z=9216 -z +u=10240 -u";
  const Cycle cycle =
      *Find("+w=512 " + generator + " +s=999 " + critic + " +t=999 " + Repeat(generator + " " + critic, 3));
  EXPECT_EQ(cycle.period, 2u);
  EXPECT_EQ(cycle.warmup, 2u);
  EXPECT_EQ(cycle.ScriptOf(2), 0u);
  EXPECT_EQ(cycle.ScriptOf(1), 1u);
  EXPECT_EQ(cycle.ScriptOf(5), 1u);
}

Cycle FindAfter(const std::string& script, std::uint32_t capturing) {
  const Trace trace = TraceFromScript(script);
  return FindCycle(BuildLifetimes(trace).value()[0], CutAtMarks(trace), true, capturing).value();
}

TEST(CycleTest, WhatFollowsACapturedStepIsAnotherProgram) {
  const std::string eager = Repeat(std::string("I ") + kBody, 4);
  const std::string launches = "I I +e=7777 +f=6666 -e -f I ";
  const Cycle cycle = FindAfter("+w=512 " + eager + "I " + launches + launches, 5);
  EXPECT_EQ(cycle.warmup, 6u) << "the longest of those after the captures, with one after it";
  EXPECT_EQ(cycle.period, 1u);
  EXPECT_THAT(cycle.typical, ElementsAre(false, false, false, false, false, true, true, true, true, true, true));
  EXPECT_EQ(FindAfter("+w=512 " + eager + "I " + launches + launches, 0).warmup, 0u) << "nothing was captured";
}

TEST(CycleTest, CapturesThatLeaveTheIterationAsItWasChangeNothing) {
  const std::string iterations = Repeat(std::string("I ") + kBody, 6);
  EXPECT_EQ(FindAfter("+w=512 " + iterations, 3).warmup, 0u);
  EXPECT_EQ(FindAfter("+w=512 " + iterations, 6).warmup, 0u) << "no iteration follows";
}

TEST(CycleTest, SizesThatVaryByChanceHaveAPeriodOfOne) {
  std::string script = "+w=512 ";
  for (int i = 0; i < 8; ++i) {
    const std::string size = std::to_string(10000 + 1777 * ((i * 5) % 8));
    script += "I +a=" + size + " +b=" + size + " -a -b +c=4096 -c ";
  }
  EXPECT_EQ(Find(script)->period, 1u);
}

TEST(CycleTest, OnePairOfIterationsThatAreMoreAlikeByChanceIsNoPeriod) {
  // Of 1, 2 and 3 the outer two are most alike, but not the same.
  const auto iteration = [](const std::string& varying) {
    std::string script = "I ";
    for (int i = 0; i < 5; ++i) script += "+a=1024 +b=2048 -a -b ";
    for (const char size : varying) script += std::string("+v=") + size + "000 -v ";
    return script;
  };
  EXPECT_EQ(Find("+w=512 " + iteration("1234567") + iteration("3333333") + iteration("5555555") + iteration("3333355"))
                ->period,
            1u);
  EXPECT_EQ(Find("+w=512 " + iteration("1234567") + iteration("3333333") + iteration("5555555") + iteration("3333333"))
                ->period,
            2u);
}

TEST(CycleTest, AnEvaluationWithoutAFenceIsNoWarmUp) {
  // Marks come from optimizer steps, so the evaluation of an epoch's end is at the beginning of the next iteration.
  const std::string body = std::string("I? ") + kBody + " ";
  std::string evaluation = "I? ";
  for (int i = 0; i < 10; ++i) evaluation += "+v=5555 +u=2048 -v -u ";
  const Cycle cycle =
      *Find("+w=512 " + Repeat(body, 4) + evaluation + kBody + " " + Repeat(body, 4) + evaluation + "-w");
  EXPECT_EQ(cycle.warmup, 0u);
  EXPECT_EQ(cycle.period, 1u);
  EXPECT_THAT(cycle.typical, ElementsAre(true, true, true, true, false, true, true, true, true, false));
}

TEST(CycleTest, WhatFollowsTheLastIterationIsNotCompared) {
  const std::string body = std::string("I ") + kBody + " ";
  std::string evaluation;
  for (int i = 0; i < 10; ++i) evaluation += "+v=5555 +u=2048 -v -u ";
  const Cycle cycle = *Find("+w=512 " + Repeat(body, 3) + evaluation);
  EXPECT_THAT(cycle.typical, ElementsAre(true, true, true));
  EXPECT_THAT(cycle.compared, ElementsAre(10u, 10u, 10u));
}

TEST(CycleTest, OneIterationIsPlannedWithAWarning) {
  const Cycle cycle = *Find(std::string("+w=512 I ") + kBody);
  EXPECT_EQ(cycle.warmup, 0u);
  EXPECT_THAT(cycle.warnings, ElementsAre(HasSubstr("only one complete iteration")));
}

TEST(CycleTest, TwoIterationsWithLazyStateWarnThatNothingFollows) {
  const std::string body(kBody);
  const Cycle cycle = *Find("I " + body + " +s=5000 I " + body);
  EXPECT_EQ(cycle.warmup, 1u);
  EXPECT_THAT(cycle.warnings, ElementsAre(HasSubstr("no complete iteration follows")));
}

TEST(CycleTest, NoIterationIsAnErrorThatSaysWhatToDo) {
  const auto cycle = Find("+w=512 -w");
  EXPECT_EQ(cycle.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(cycle.status().message()), HasSubstr("stalloc.iteration()"));
}

TEST(CycleTest, AnIterationWithoutRequestsIsAnError) { EXPECT_FALSE(Find("+w=512 I").ok()); }

}  // namespace
}  // namespace stalloc::planner
