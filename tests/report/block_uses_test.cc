#include "planner/report/block_uses.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "tests/report/facts_fixture.h"

namespace stalloc::planner {
namespace {

using Found = std::vector<std::pair<std::uint32_t, std::uint32_t>>;  // event and operation

Found Of(const BlockUses& uses, std::uint32_t block) {
  Found found;
  for (const BlockUses::Use& use : uses.Of(block)) found.push_back({use.event, use.operation});
  return found;
}

TEST(BlockUsesTest, EachDeviceHasThoseOfItsBlocksInOrder) {
  // Allocations of the file: a and c on device 0, b and d on device 1.
  const Trace trace = TraceFromScript("+a=512 D1 +b=512 D0 +c=512 D1 +d=512");
  const TracedRank traced = TakeTrace(trace).value();
  ASSERT_EQ(traced.devices.size(), 2u);
  const std::vector<BlockUse> recorded = {{2, 4, 7}, {0, 3, 8}, {1, 2, 9}, {0, 1, 6}, {3, 4, 5}};
  const BlockUses first(traced, traced.devices[0], recorded);
  EXPECT_EQ(Of(first, 0), (Found{{1, 6}, {3, 8}}));
  EXPECT_EQ(Of(first, 1), (Found{{4, 7}}));
  const BlockUses second(traced, traced.devices[1], recorded);
  EXPECT_EQ(Of(second, 0), (Found{{2, 9}}));
  EXPECT_EQ(Of(second, 1), (Found{{4, 5}}));
}

TEST(BlockUsesTest, WhatTheTraceLacksIsLeftOut) {
  const TracedRank traced = TakeTrace(TraceFromScript("+a=512 -a")).value();
  const BlockUses uses(traced, traced.devices[0], {{0, 1, 0}, {1, 1, 0}, {0, 3, 0}});
  EXPECT_EQ(Of(uses, 0), (Found{{1, 0}}));
  EXPECT_FALSE(uses.empty());
  EXPECT_TRUE(BlockUses(traced, traced.devices[0], {}).empty());
}

}  // namespace
}  // namespace stalloc::planner
