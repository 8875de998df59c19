#include "planner/report/growth.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/report/facts_fixture.h"

namespace stalloc::planner {
namespace {

using testing::ElementsAre;

TEST(GrowthTest, CountsWhatOutlivesTheNextIteration) {
  // s stays from the first iteration on (state), k is handed to the next iteration, l leaks in each.
  const ScriptFacts facts(
      "+w=4096 I +s=4096 +a=512 -a +k=1024 +l1=2048 I +a=512 -a -k +k=1024 +l2=2048 I +a=512 -a -k +k=1024 +l3=2048 "
      "I +a=512 -a -k +k=1024 +l4=2048 I +a=512 -a -k +k=1024 +l5=2048 I +a=512 -a -k");
  const Growth growth = FindGrowth(*facts, facts.traced().segmentation, 10);
  EXPECT_THAT(growth.begin_live,
              ElementsAre(0, 4096, 11264, 11264 + 2048, 11264 + 2 * 2048, 11264 + 3 * 2048, 11264 + 4 * 2048));
  ASSERT_EQ(growth.groups.size(), 2u);
  EXPECT_EQ(growth.groups[0].bytes, 2048u);
  EXPECT_THAT(growth.groups[0].left, ElementsAre(0, 1, 1, 1, 1, 0, 0));
  EXPECT_EQ(growth.groups[1].bytes, 4096u);
  EXPECT_THAT(growth.groups[1].left, ElementsAre(0, 1, 0, 0, 0, 0, 0));
}

TEST(GrowthTest, WhatIsFreedWithTheProcessStays) {
  const ScriptFacts facts("+w=4096 " + Repeat("I +a=512 -a ", 2) +
                          "I +l=2048 I +a=512 -a I +a=512 -a I +a=512 -a -l -w");
  const Growth growth = FindGrowth(*facts, facts.traced().segmentation, 10);
  ASSERT_EQ(growth.groups.size(), 1u);
  EXPECT_EQ(growth.groups[0].bytes, 2048u);
}

TEST(GrowthTest, KeepsTheLargest) {
  const ScriptFacts facts("I +a=512 +b=4096 I +c=512 -c I +c=512 -c I +c=512 -c");
  const Growth growth = FindGrowth(*facts, facts.traced().segmentation, 1);
  ASSERT_EQ(growth.groups.size(), 1u);
  EXPECT_EQ(growth.groups[0].bytes, 4096u);
}

}  // namespace
}  // namespace stalloc::planner
