#include "planner/packing/finish/hand_overs.h"

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <random>

#include "planner/packing/search/size_first_fit.h"
#include "tests/packing/naive.h"

namespace stalloc::planner {
namespace {

Block MakeBlock(Bytes bytes, Lifetime life, std::uint32_t stream) {
  return {.bytes = bytes, .life = life, .stream = stream};
}

TEST(HandOversTest, BlocksOfOneStreamNeverCount) {
  const Problem problem{{MakeBlock(8, {0, 1}, 3), MakeBlock(8, {1, 2}, 3)}};
  EXPECT_TRUE(FindHandOvers(problem, std::vector<Offset>{0, 0}, {}).empty());
  EXPECT_FALSE(MayNeedWaits(problem));
  EXPECT_FALSE(MayNeedWaits({}));
}

TEST(HandOversTest, WhoeverSoonTakesTheBytesOfABlockThatOtherStreamsUseWaits) {
  constexpr std::array<Offset, 3> kOffsets = {0, 0, 0};
  Problem problem{{MakeBlock(8, {0, 1}, 3), MakeBlock(8, {1, 2}, 3), MakeBlock(8, {2, 3}, 3)}};
  problem.blocks[1].recorded = true;
  EXPECT_TRUE(MayNeedWaits(problem));
  const std::vector<HandOver> found = FindHandOvers(problem, kOffsets, {});
  EXPECT_EQ(found, (std::vector<HandOver>{{1, 2, 8}}));
  EXPECT_TRUE(CountByStreams(problem, found).empty()) << "nothing passes between two streams";
  problem.blocks[2].life = {1 + kRecordedStreamsAreDone, 2 + kRecordedStreamsAreDone};
  EXPECT_EQ(FindHandOvers(problem, kOffsets, {}), found);
  problem.blocks[2].life = {2 + kRecordedStreamsAreDone, 3 + kRecordedStreamsAreDone};
  EXPECT_TRUE(FindHandOvers(problem, kOffsets, {}).empty());
}

TEST(HandOversTest, TheNextRoundTakesBytesOfTheLastOne) {
  Problem problem{{MakeBlock(8, {0, 1}, 0), MakeBlock(8, {1, 2}, 0)}};
  problem.blocks[1].recorded = true;
  constexpr std::array<Offset, 2> kOffsets = {0, 0};
  EXPECT_TRUE(FindHandOvers(problem, kOffsets, {0, 2 + kRecordedStreamsAreDone}).empty());
  EXPECT_EQ(FindHandOvers(problem, kOffsets, {0, 1 + kRecordedStreamsAreDone}), (std::vector<HandOver>{{1, 0, 8}}));
}

TEST(HandOversTest, OnlyTheBytesThatPassCountAndOnlyFromTheirLastHolder) {
  // Block 1 takes half of block 0's bytes; block 2 gets the half of each, and of block 0 only what block 1 left.
  const Problem problem{{MakeBlock(8, {0, 1}, 0), MakeBlock(4, {1, 2}, 1), MakeBlock(8, {2, 3}, 0)}};
  const std::vector<HandOver> found = FindHandOvers(problem, std::vector<Offset>{0, 0, 2}, {});
  EXPECT_EQ(found, (std::vector<HandOver>{{0, 1, 4}, {1, 2, 2}}));
  EXPECT_EQ(CountByStreams(problem, found), (std::vector<StreamPair>{{0, 1, 1, 4}, {1, 0, 1, 2}}));
}

TEST(HandOversTest, BytesInSeveralRunsAreOneHandOver) {
  const Problem problem{{MakeBlock(9, {0, 1}, 0), MakeBlock(3, {1, 2}, 0), MakeBlock(9, {2, 3}, 1)}};
  EXPECT_EQ(FindHandOvers(problem, std::vector<Offset>{0, 3, 0}, {}), (std::vector<HandOver>{{0, 2, 6}, {1, 2, 3}}));
}

TEST(HandOversTest, TheEndOfTheCycleReachesItsBeginning) {
  const Problem problem{{MakeBlock(8, {10, 11}, 0), MakeBlock(8, {11, 12}, 1)}};
  const std::vector<Offset> offsets = {0, 0};
  EXPECT_EQ(FindHandOvers(problem, offsets, {}).size(), 1u);
  EXPECT_EQ(FindHandOvers(problem, offsets, {10, 12}), (std::vector<HandOver>{{0, 1, 8}, {1, 0, 8}}));
}

TEST(HandOversTest, WhatThePrologueLeavesIsHandedOverOnce) {
  const Problem problem{{MakeBlock(8, {0, 10}, 1), MakeBlock(8, {10, 12}, 0)}};
  EXPECT_EQ(FindHandOvers(problem, std::vector<Offset>{0, 0}, {10, 12}), (std::vector<HandOver>{{0, 1, 8}}));
}

TEST(HandOversTest, AnArcTakesItsBytesWhereItIsAllocatedNotWhereTheCycleBegins) {
  Block arc = MakeBlock(8, {15, 20}, 0);
  arc.second_life = Lifetime{10, 12};
  // The prologue's block is gone when the cycle begins; in the first round nobody has the arc's place until tick 15.
  const Problem problem{{MakeBlock(8, {0, 10}, 1), arc, MakeBlock(8, {12, 15}, 1)}};
  EXPECT_EQ(FindHandOvers(problem, std::vector<Offset>{0, 0, 0}, {10, 20}),
            (std::vector<HandOver>{{1, 2, 8}, {2, 1, 8}}));
}

// Byte by byte, use by use.
std::vector<HandOver> NaiveHandOvers(const Problem& problem, const Packing& packing, const CycleAxis& cycle) {
  std::vector<int> holders(packing.height, -1);
  std::map<std::pair<std::uint32_t, std::uint32_t>, Bytes> most;
  for (int round = 0; round < (cycle.empty() ? 1 : 2); ++round) {
    for (Tick tick = round == 0 ? 0 : cycle.begin; tick < 100; ++tick) {
      for (std::size_t i = 0; i < problem.blocks.size(); ++i) {
        const Block& block = problem.blocks[i];
        const bool through = block.life == Lifetime{cycle.begin, cycle.end};
        const bool begins = block.life.begin == tick || (block.second_life && block.second_life->begin == tick);
        if (!begins || (round == 1 && through)) continue;
        std::map<std::uint32_t, Bytes> now;
        for (Offset at = packing.offsets[i]; at < packing.offsets[i] + block.bytes; ++at) {
          if (holders[at] >= 0) ++now[static_cast<std::uint32_t>(holders[at])];
          holders[at] = static_cast<int>(i);
        }
        for (const auto& [from, bytes] : now) {
          if (problem.blocks[from].stream == block.stream) continue;
          Bytes& greatest = most[{from, static_cast<std::uint32_t>(i)}];
          greatest = std::max(greatest, bytes);
        }
      }
    }
  }
  std::vector<HandOver> found;
  for (const auto& [pair, bytes] : most) found.push_back({pair.first, pair.second, bytes});
  return found;
}

TEST(HandOversTest, AgreesWithAWalkOverEveryByte) {
  std::mt19937_64 random(51);
  for (int round = 0; round < 200; ++round) {
    Problem problem =
        RandomProblem({.blocks = 25, .ticks = 40, .max_bytes = 12, .second_lives = round % 2 == 0}, random);
    for (Block& block : problem.blocks) block.stream = static_cast<std::uint32_t>(random() % 3);
    const Packing packing = MakeSizeFirstFit()->Solve(problem, {});
    // No block reaches tick 41, so none is an arc.
    const CycleAxis cycle = round % 3 == 0 ? CycleAxis{} : CycleAxis{20, 41};
    ASSERT_EQ(FindHandOvers(problem, packing.offsets, cycle), NaiveHandOvers(problem, packing, cycle))
        << "round " << round;
  }
}

}  // namespace
}  // namespace stalloc::planner
