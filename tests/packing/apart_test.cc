#include "planner/packing/finish/apart.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <random>

#include "planner/packing/problem/plan_check.h"
#include "planner/packing/search/size_first_fit.h"

namespace stalloc::planner {
namespace {

Packing BySize(const Problem& problem, Work /*work*/ = 0) { return MakeSizeFirstFit()->Solve(problem, {}); }

Problem RandomLives(std::mt19937_64& random) {
  Problem problem;
  for (std::uint64_t i = 0, count = random() % 60; i < count; ++i) {
    const Tick begin = static_cast<Tick>(random() % 40);
    Block block{
        .id = i, .bytes = 512 * (random() % 20 + 1), .life = {begin, begin + 1 + static_cast<Tick>(random() % 20)}};
    block.alignment = random() % 4 == 0 ? 4096 : 512;
    problem.blocks.push_back(block);
  }
  return problem;
}

TEST(ApartTest, SmallBlocksLieBelowAllOthersAndThePackingHolds) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 200; ++round) {
    const Problem problem = RandomLives(random);
    const Bytes least = 512 * (random() % 22);
    const Packing packing = PackApart(problem, least, BySize);
    ASSERT_TRUE(CheckPacking(problem, packing).ok()) << CheckPacking(problem, packing).message();
    Offset small_end = 0;
    Offset large_begin = packing.height;
    for (std::size_t i = 0; i < problem.blocks.size(); ++i) {
      const Bytes bytes = problem.blocks[i].bytes;
      if (bytes < least) {
        small_end = std::max(small_end, packing.offsets[i] + bytes);
      } else {
        large_begin = std::min(large_begin, packing.offsets[i]);
      }
    }
    EXPECT_LE(small_end, large_begin) << "round " << round;
  }
}

TEST(ApartTest, OneKindAloneIsPackedAsItIs) {
  std::mt19937_64 random(2);
  const Problem problem = RandomLives(random);
  EXPECT_EQ(PackApart(problem, 0, BySize).offsets, BySize(problem).offsets);
  EXPECT_EQ(PackApart(problem, Bytes{1} << 30, BySize).offsets, BySize(problem).offsets);
  EXPECT_EQ(PackApart({}, 512, BySize).height, 0u);
}

TEST(ApartTest, APackingIsLiftedAboveItsSmallBlocks) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 200; ++round) {
    const Problem problem = RandomLives(random);
    const Bytes least = 512 * (random() % 22);
    const Packing whole = BySize(problem);
    const Packing packing = LiftApart(problem, least, whole);
    ASSERT_TRUE(CheckPacking(problem, packing).ok()) << CheckPacking(problem, packing).message();
    std::optional<Offset> lift;
    for (std::size_t i = 0; i < problem.blocks.size(); ++i) {
      if (problem.blocks[i].bytes < least) continue;
      const Offset own = packing.offsets[i] - whole.offsets[i];
      EXPECT_EQ(lift.value_or(own), own) << "round " << round;
      lift = own;
    }
    EXPECT_LE(packing.height, whole.height + lift.value_or(0));
  }
}

TEST(ApartTest, AsManyAreWorthItAsCostNoMoreThanThat) {
  // 64 KiB and 8 KiB are alive at the peak, 2 KiB and 1 KiB at another time.
  Problem problem;
  const auto add = [&](Bytes bytes, Tick begin) {
    problem.blocks.push_back({.id = problem.blocks.size(), .bytes = bytes, .life = {begin, begin + 1}});
  };
  add(64 << 10, 0);
  add(8 << 10, 0);
  add(2 << 10, 1);
  add(1 << 10, 1);
  EXPECT_EQ(WorthApart(problem, 256 << 10, 72 << 10), 256u << 10) << "all of them are small";
  EXPECT_EQ(WorthApart(problem, 64 << 10, 72 << 10), 64u << 10) << "8 KiB are alive with the 64 KiB in any case";
  EXPECT_EQ(WorthApart(problem, 4 << 10, 75 << 10), 4u << 10) << "3 KiB";
  EXPECT_EQ(WorthApart(problem, 4 << 10, 74 << 10), 1u << 10) << "nothing is smaller than that";
  EXPECT_EQ(WorthApart(problem, 4 << 10, 71 << 10), 0u) << "below the bound of all";
  EXPECT_EQ(WorthApart({}, 512, 0), 0u);
}

}  // namespace
}  // namespace stalloc::planner
