#include "planner/packing/finish/tidy.h"

#include <gtest/gtest.h>

#include <random>

#include "planner/packing/search/size_first_fit.h"
#include "tests/packing/naive.h"
#include "tests/packing/tidiness.h"

namespace stalloc::planner {
namespace {

Problem RandomStreams(int round, std::mt19937_64& random) {
  Problem problem = RandomProblem({.blocks = 120,
                                   .ticks = 80,
                                   .max_bytes = 3000,
                                   .second_lives = round % 2 == 0,
                                   .max_alignment = round % 3 == 0 ? Bytes{64} : Bytes{1}},
                                  random);
  for (Block& block : problem.blocks) block.stream = round % 4 == 0 ? 0 : static_cast<std::uint32_t>(random() % 3 / 2);
  return problem;
}

TEST(TidyTest, KeepsValidityHeightAndProofAndNeverGetsWorse) {
  std::mt19937_64 random(61);
  int better = 0;
  int fewer_waits = 0;
  for (int round = 0; round < 40; ++round) {
    const Problem problem = RandomStreams(round, random);
    Packing before = MakeSizeFirstFit()->Solve(problem, {});
    before.proved_bound = before.height / 2;
    const CycleAxis cycle = round % 2 == 0 ? CycleAxis{} : CycleAxis{40, 81};
    const Packing after = Tidy(problem, before, {.cycle = cycle});
    ASSERT_TRUE(NaiveIsValid(problem, after)) << "round " << round;
    ASSERT_EQ(after.height, before.height);
    ASSERT_EQ(after.proved_bound, before.proved_bound);
    const Tidiness old_one = MeasureTidiness(problem, before, cycle);
    const Tidiness new_one = MeasureTidiness(problem, after, cycle);
    ASSERT_FALSE(old_one.BetterThan(new_one)) << "round " << round;
    ASSERT_NEAR(new_one.scatter.idle, old_one.scatter.idle, 1e-6 * old_one.scatter.idle);
    better += new_one.BetterThan(old_one);
    fewer_waits += new_one.hand_overs < old_one.hand_overs;
  }
  EXPECT_GE(better, 20);
  EXPECT_GE(fewer_waits, 20);
}

TEST(TidyTest, TheSameInputGivesTheSamePacking) {
  std::mt19937_64 random(62);
  for (int round = 0; round < 5; ++round) {
    const Problem problem = RandomStreams(round, random);
    const Packing before = MakeSizeFirstFit()->Solve(problem, {});
    EXPECT_EQ(Tidy(problem, before, {}).offsets, Tidy(problem, before, {}).offsets);
  }
}

TEST(TidyTest, MovesAMinorStreamOutOfTheOthersBytes) {
  // Blocks of two streams take turns in the lowest bytes, though there is room for both.
  Problem problem{{{.bytes = 4096, .life = {0, 1}}, {.bytes = 4096, .life = {9, 10}}}};
  problem.blocks.push_back({.bytes = 8192, .life = {10, 11}});  // makes the arena high enough
  for (Tick tick = 1; tick < 9; ++tick) {
    problem.blocks.push_back({.bytes = 1024, .life = {tick, tick + 1}, .stream = tick % 2 == 0 ? 0u : 7u});
  }
  const Packing before = MakeSizeFirstFit()->Solve(problem, {});
  EXPECT_GE(MeasureTidiness(problem, before, {}).hand_overs, 8u);
  const Packing after = Tidy(problem, before, {});
  // The last block takes the whole arena, so one hand-over stays.
  EXPECT_EQ(MeasureTidiness(problem, after, {}).hand_overs, 1u);
}

TEST(TidyTest, NobodyTakesTheBytesOfABlockThatOtherStreamsUseWhereThereIsRoom) {
  Problem problem{{{.bytes = 8192, .life = {1000, 1001}}}};  // makes the arena high enough
  for (Tick tick = 0; tick < 8; ++tick) {
    problem.blocks.push_back({.bytes = 1024, .life = {tick, tick + 1}, .recorded = tick == 3});
  }
  const Packing before = MakeSizeFirstFit()->Solve(problem, {});
  EXPECT_EQ(MeasureTidiness(problem, before, {}).hand_overs, 1u);
  const Packing after = Tidy(problem, before, {});
  EXPECT_EQ(after.height, before.height);
  EXPECT_EQ(MeasureTidiness(problem, after, {}).hand_overs, 0u);
}

TEST(TidyTest, LeavesThePackingAloneWhenItMayDoNothing) {
  std::mt19937_64 random(63);
  const Problem problem = RandomStreams(1, random);
  const Packing before = MakeSizeFirstFit()->Solve(problem, {});
  const std::atomic<bool> stop{true};
  EXPECT_EQ(Tidy(problem, before, {.stop = &stop}).offsets, before.offsets);
  EXPECT_EQ(Tidy(problem, before, {.placements = 2 * problem.blocks.size() - 1}).offsets, before.offsets);
  EXPECT_TRUE(Tidy({}, {}, {}).offsets.empty());
}

TEST(ScatterTest, OneIdleRangeIsNotScatteredAndTwoEqualOnesAreHalf) {
  const Problem problem{{{.bytes = 10, .life = {0, 4}}, {.bytes = 90, .life = {4, 5}}}};
  const Scatter low = ScatterMeter(problem).Measure(std::vector<Offset>{0, 0}, 90);
  EXPECT_EQ(low.idle, 4 * 80.0);
  EXPECT_EQ(low.share(), 0.0);
  EXPECT_EQ(ScatterMeter(problem).Measure(std::vector<Offset>{40, 0}, 90).share(), 0.5);
  EXPECT_EQ(Scatter{}.share(), 0.0);
}

TEST(ScatterTest, OnlyTheCycleCounts) {
  const Problem problem{{{.bytes = 10, .life = {0, 4}}, {.bytes = 90, .life = {4, 5}}}};
  EXPECT_EQ(ScatterMeter(problem, {2, 5}).Measure(std::vector<Offset>{0, 0}, 90).idle, 2 * 80.0);
  // From tick 5 on nothing is alive.
  EXPECT_EQ(ScatterMeter(problem, {4, 9}).Measure(std::vector<Offset>{0, 0}, 90).longest, 4 * 90.0);
}

TEST(ScatterTest, AgreesWithAWalkOverEveryByteAndTick) {
  std::mt19937_64 random(64);
  for (int round = 0; round < 100; ++round) {
    const Problem problem =
        RandomProblem({.blocks = 15, .ticks = 20, .max_bytes = 9, .second_lives = round % 2 == 0}, random);
    const Packing packing = MakeSizeFirstFit()->Solve(problem, {});
    Tick first = 100;
    Tick last = 0;
    for (const Block& block : problem.blocks) {
      for (const Lifetime& life : {block.life, block.second_life.value_or(block.life)}) {
        first = std::min(first, life.begin);
        last = std::max(last, life.end);
      }
    }
    double idle = 0;
    double longest = 0;
    for (Tick tick = first; tick < last; ++tick) {
      std::vector<bool> taken(packing.height);
      for (std::size_t i = 0; i < problem.blocks.size(); ++i) {
        if (!NaiveConflict(problem.blocks[i], {.life = {tick, tick + 1}})) continue;
        for (Bytes byte = 0; byte < problem.blocks[i].bytes; ++byte) taken[packing.offsets[i] + byte] = true;
      }
      int run = 0;
      int best = 0;
      for (const bool is_taken : taken) {
        idle += !is_taken;
        run = is_taken ? 0 : run + 1;
        best = std::max(best, run);
      }
      longest += best;
    }
    const Scatter scatter = ScatterMeter(problem).Measure(packing.offsets, packing.height);
    ASSERT_EQ(scatter.idle, idle) << "round " << round;
    ASSERT_EQ(scatter.longest, longest) << "round " << round;
  }
}

}  // namespace
}  // namespace stalloc::planner
