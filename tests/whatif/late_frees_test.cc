#include "planner/whatif/late_frees.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/report/facts_fixture.h"

namespace stalloc::planner {
namespace {

// Bytes of the blocks, and why.
std::vector<std::pair<Bytes, std::string>> Late(const ScriptFacts& facts) {
  std::vector<std::pair<Bytes, std::string>> found;
  for (const LateFree& late : FindLateFrees(*facts)) {
    EXPECT_LT(late.early_event, facts->device.allocations[late.block].free_event);
    EXPECT_GT(late.early_event, facts->device.allocations[late.block].event);
    found.push_back({facts->device.allocations[late.block].bytes, LateKindName(late.kind)});
  }
  return found;
}
using LateBlocks = std::vector<std::pair<Bytes, std::string>>;

TEST(LateFreesTest, WhatIsFreedInItsBackwardOrBeforeTheOptimizerEndsIsInTime) {
  const ScriptFacts facts("+w=4096 " + Repeat("I F0 +a=512 F1 +b=1024 B0 +g=2048 -a B1 -b O -g ", 4));
  EXPECT_EQ(Late(facts), LateBlocks{});
}

TEST(LateFreesTest, OutlivesItsOwnBackwardNotThatOfAnother) {
  const ScriptFacts facts("+w=4096 " + Repeat("I F0 +a=512 F1 +b=1024 B1 -b B0 -a F2 +c=1536 B2 O -c ", 1));
  EXPECT_EQ(Late(facts), (LateBlocks{{1536, "after the backward"}}));
}

TEST(LateFreesTest, GradientsUntilTheNextBackward) {
  const ScriptFacts facts("+w=4096 " + Repeat("I F0 +a=512 B0 -a +g=2048 O I F0 +a=512 B0 -g -a +h=2048 O -h ", 2));
  EXPECT_EQ(Late(facts), (LateBlocks{{2048, "after the optimizer"}, {2048, "after the optimizer"}}));
}

TEST(LateFreesTest, WhatTheNextForwardReplaces) {
  const ScriptFacts facts("+w=4096 I F0 +l=1024 B0 O " +
                          Repeat("I F0 +m=1536 -l B0 O I F0 +l=2048 -m B0 O +t=512 -t ", 2));
  EXPECT_EQ(Late(facts), (LateBlocks{{1024, "after the backward"},
                                     {1536, "after the backward"},
                                     {2048, "after the backward"},
                                     {1536, "after the backward"}}));
}

TEST(LateFreesTest, WhatTheNextIterationReplacesWhereNoMarkTellsThePasses) {
  const ScriptFacts facts("+w=4096 I +l=1024 +a=512 -a " + Repeat("I +m=1536 -l +a=512 -a I +l=2048 -m +a=512 -a ", 1));
  EXPECT_EQ(Late(facts), (LateBlocks{{1024, "after the iteration"}, {1536, "after the iteration"}}));
}

// m has the layers a, b and c. Their blocks stay until the forward pass's graph goes.
TEST(LateFreesTest, AForwardPassWithoutABackwardPassKeepsItsGraph) {
  const std::string forward = "L:m L:a +a=512 LE:a=1 L:b +b=1024 LE:b=1 L:c +c=2048 LE:c=1 LE:m=1 ";
  const std::string trained = "I " + forward + "LB:m -c -b -a LE:m O +t=512 -t ";
  EXPECT_EQ(Late(ScriptFacts("+w=4096 " + Repeat(trained + forward + "-c -b -a ", 3))),
            (LateBlocks{{512, "without a backward"},
                        {1024, "without a backward"},
                        {512, "without a backward"},
                        {1024, "without a backward"},
                        {512, "without a backward"},
                        {1024, "without a backward"}}))
      << "a is needed until b ends, b until c does, and c is the output";
  EXPECT_EQ(Late(ScriptFacts("+w=4096 " + Repeat(trained, 3))), LateBlocks{});
  EXPECT_EQ(Late(ScriptFacts("+w=4096 " + Repeat("I " + forward + "-c -b -a O +t=512 -t ", 3))), LateBlocks{})
      << "no backward pass of it is marked anywhere";
}

TEST(LateFreesTest, StateIsNotLate) {
  const ScriptFacts facts("+w=4096 I F0 +s=512 B0 O " + Repeat("I F0 +a=512 B0 -a O ", 4));
  EXPECT_EQ(Late(facts), LateBlocks{});
}

}  // namespace
}  // namespace stalloc::planner
