#include "planner/report/graph_pools.h"

#include <gtest/gtest.h>

#include "tests/report/facts_fixture.h"

namespace stalloc::planner {
namespace {

TEST(GraphPoolsTest, WithoutACaptureThereAreNone) {
  const ScriptFacts facts("+w=4096 I +a=512 -a I +a=512 -a");
  const GraphPools found = FindGraphPools(*facts);
  EXPECT_TRUE(found.pools.empty());
  EXPECT_EQ(found.held, 0u);
}

// Pool 1 has 4096 + 2048 at most, of which 1024 stay; an evaluation of 8192 comes when 5120 of them lie idle.
TEST(GraphPoolsTest, WhatAPoolHasHadAtMostIsHeldBesideWhatIsLiveOutside) {
  const ScriptFacts facts(
      "+w=4096 I +a=4096!1 +b=2048!1 -b -a +r=1024!1 I +e=8192 -e I +x=512!2 +y=512!1 -y -x +e=2048 -e");
  const GraphPools found = FindGraphPools(*facts);
  ASSERT_EQ(found.pools.size(), 2u);
  EXPECT_EQ(found.pools[0].pool_plus_one, 1u);
  EXPECT_EQ(found.pools[0].requests, 4u);
  EXPECT_EQ(found.pools[0].most, 6144u);
  EXPECT_EQ(found.pools[0].end, 1024u);
  EXPECT_EQ(found.pools[0].idle_then, 5120u);
  EXPECT_EQ(found.pools[1].most, 512u);
  EXPECT_EQ(found.pools[1].idle_then, 0u) << "it was not there yet";
  EXPECT_EQ(found.held, 4096u + 6144 + 8192);
  EXPECT_EQ(found.live_then, 4096u + 1024 + 8192);
}

TEST(GraphPoolsTest, OlderTracesDoNotTellPoolsApart) {
  const ScriptFacts facts("I +a=4096! -a I +b=512! +c=1024 -c");
  const GraphPools found = FindGraphPools(*facts);
  ASSERT_EQ(found.pools.size(), 1u);
  EXPECT_EQ(found.pools[0].pool_plus_one, 0u);
  EXPECT_EQ(found.pools[0].most, 4096u);
  EXPECT_EQ(found.held, 4096u + 1024);
}

}  // namespace
}  // namespace stalloc::planner
