#include "planner/report/iteration_table.h"

#include <gtest/gtest.h>

#include "tests/report/facts_fixture.h"

namespace stalloc::planner {
namespace {

TEST(IterationTableTest, WhatVariesIsToldByIteration) {
  const ScriptFacts facts(
      "+w=4096 I F0 +a=1024 +x=2048 B0 -x -a I F0 +a=1024 +x=2560 B0 -x -a "
      "I F0 +a=1024 +x=4096 B0 -x +x=512 -x -a I F0 +a=1024 +x=3072 B0 -x -a I F0 +a=1024 +x=3584 B0 -x -a");
  const auto rows = TabulateIterations(*facts);
  ASSERT_EQ(rows.size(), 6u);
  EXPECT_EQ(rows[0].peak_live, 4096u);
  EXPECT_EQ(rows[0].dynamic_peak, 0u);
  EXPECT_EQ(rows[3].peak_live, 4096u + 1024u + 4096u);
  EXPECT_EQ(rows[3].dynamic_peak, 4096u);
  EXPECT_EQ(rows[3].dynamic_requested, 4096u + 512u);
  EXPECT_EQ(rows[5].dynamic_peak, 3584u);
}

TEST(IterationTableTest, WhatStaysFromOneIterationCountsInTheNext) {
  const ScriptFacts facts("+w=4096 I +a=1024 I +b=512 -a -b I +a=1024 I +b=512 -a -b");
  const auto rows = TabulateIterations(*facts);
  EXPECT_EQ(rows[1].peak_live, 4096u + 1024u);
  EXPECT_EQ(rows[2].peak_live, 4096u + 1024u + 512u);
}

}  // namespace
}  // namespace stalloc::planner
