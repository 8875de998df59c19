#include "planner/report/block_tables.h"

#include <gtest/gtest.h>

#include <numeric>

#include "planner/analysis/peak.h"
#include "tests/report/facts_fixture.h"

namespace stalloc::planner {
namespace {

const std::string kRun =
    "+v=4096 +w=4096 " + Repeat("I F0 L:mlp +a=1024 +b=1024 B0 +g=2048 -a -b O -g ", 3) + "+x=8192 -x";

Bytes SumOf(const PeakView& view) {
  Bytes sum = view.omitted_bytes;
  for (const PeakGroup& group : view.groups) sum += group.bytes * group.count;
  return sum;
}

TEST(BlockTablesTest, ThePeakIsThatOfTheAnalysis) {
  const ScriptFacts facts(kRun);
  const PeakView view = GroupPeak(*facts, 100);
  EXPECT_EQ(view.live_bytes, FindPeak(facts->device, nullptr, facts->phases).live_bytes);
  EXPECT_EQ(SumOf(view), view.live_bytes);
}

TEST(BlockTablesTest, BlocksThatAreAlikeShareARow) {
  const ScriptFacts facts("+v=4096 +w=4096 " + Repeat("I F0 L:mlp +a=1024 +b=1024 B0 +g=2048 -a -b O -g ", 3));
  const PeakView view = GroupPeak(*facts, 100);
  ASSERT_EQ(view.groups.size(), 3u);
  EXPECT_EQ(view.groups[0].bytes, 4096u);
  EXPECT_EQ(view.groups[0].count, 2u);
  EXPECT_EQ(view.groups[0].fact.memory_class, MemoryClass::kWeights);
  EXPECT_EQ(view.groups[1].count * view.groups[1].bytes, 2048u);
  const PeakGroup& activations = view.groups[1].count == 2 ? view.groups[1] : view.groups[2];
  EXPECT_EQ(activations.fact.memory_class, MemoryClass::kActivations);
  EXPECT_EQ(facts->layers.names()[activations.fact.layer], "mlp");
}

TEST(BlockTablesTest, WhatIsLeftOutIsCounted) {
  const ScriptFacts facts(kRun);
  const PeakView view = GroupPeak(*facts, 1);
  EXPECT_EQ(view.groups.size(), 1u);
  EXPECT_GT(view.omitted_blocks, 0u);
  EXPECT_EQ(SumOf(view), view.live_bytes);
}

TEST(BlockTablesTest, TopHasTheLargestAndTheMostExpensive) {
  // x is largest and gone at once; the weights stay.
  const ScriptFacts facts(kRun);
  const auto top = TopGroups(*facts, 1);
  ASSERT_EQ(top.size(), 2u);
  EXPECT_EQ(top[0].bytes, 4096u);
  EXPECT_EQ(top[0].count, 2u);
  const auto us = static_cast<double>(facts->clock.end_ns()) * 1e-9;
  EXPECT_NEAR(top[0].byte_seconds, 4096 * (2 * us - 1e-6), 1e-9);  // to the end; the second comes one event later
  EXPECT_EQ(top[1].bytes, 8192u);
  EXPECT_EQ(top[1].longest_ns, 1000);
}

TEST(BlockTablesTest, RunGroupsCoverIterations) {
  const ScriptFacts facts(kRun);
  std::uint64_t blocks = 0;
  for (const RunGroup& group : TopGroups(*facts, 100)) blocks += group.count;
  EXPECT_EQ(blocks, facts->device.allocations.size());
}

}  // namespace
}  // namespace stalloc::planner
