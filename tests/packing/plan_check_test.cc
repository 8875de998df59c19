#include "planner/packing/problem/plan_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <numeric>
#include <random>
#include <vector>

#include "tests/packing/naive.h"

namespace stalloc::planner {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string Message(const absl::Status& status) { return std::string(status.message()); }

Problem TwoThatMeet() { return {{{.id = 7, .bytes = 8, .life = {0, 5}}, {.id = 9, .bytes = 6, .life = {4, 9}}}}; }

TEST(CheckPackingTest, AcceptsBlocksThatTouchInSpaceOrInTime) {
  EXPECT_TRUE(CheckPacking(TwoThatMeet(), {{0, 8}, 14}).ok());
  const Problem in_turn{{{.id = 0, .bytes = 8, .life = {0, 5}}, {.id = 1, .bytes = 6, .life = {5, 9}}}};
  EXPECT_TRUE(CheckPacking(in_turn, {{0, 0}, 8}).ok());
}

TEST(CheckPackingTest, NamesBothBlocksThatOverlap) {
  const absl::Status status = CheckPacking(TwoThatMeet(), {{0, 7}, 13});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(status),
              AllOf(HasSubstr("block 7 at [0, 8) alive [0, 5)"), HasSubstr("block 9 at [7, 13) alive [4, 9)")));
}

TEST(CheckPackingTest, FindsAnOverlapInTheSecondLifetimeOnly) {
  const Problem problem{
      {{.id = 1, .bytes = 8, .life = {8, 10}, .second_life = Lifetime{0, 2}}, {.id = 2, .bytes = 6, .life = {1, 4}}}};
  EXPECT_TRUE(CheckPacking(problem, {{0, 8}, 14}).ok());
  EXPECT_THAT(Message(CheckPacking(problem, {{0, 2}, 8})), HasSubstr("overlap"));
}

TEST(CheckPackingTest, RefusesAMisalignedOffset) {
  const Problem problem{{{.id = 3, .bytes = 8, .life = {0, 5}, .alignment = 512}}};
  EXPECT_TRUE(CheckPacking(problem, {{1024}, 2000}).ok());
  EXPECT_THAT(Message(CheckPacking(problem, {{256}, 2000})), HasSubstr("block 3 is misaligned"));
}

TEST(CheckPackingTest, RefusesAHeightThatIsTooSmall) {
  EXPECT_THAT(Message(CheckPacking(TwoThatMeet(), {{0, 8}, 13})), HasSubstr("height 13 is too small"));
}

TEST(CheckPackingTest, RefusesAnotherNumberOfOffsets) {
  EXPECT_THAT(Message(CheckPacking(TwoThatMeet(), {{0}, 14})), HasSubstr("blocks 2, offsets 1"));
}

TEST(CheckPackingTest, RefusesAnOffsetWhoseEndOverflows) {
  EXPECT_THAT(Message(CheckPacking(TwoThatMeet(), {{0, ~Offset{0} - 2}, ~Bytes{0}})), HasSubstr("address space"));
}

TEST(CheckPackingTest, RefusesLifetimesThatAreEmptyOrOverlapEachOther) {
  const Problem empty{{{.id = 1, .bytes = 8, .life = {5, 5}}}};
  EXPECT_THAT(Message(CheckPacking(empty, {{0}, 8})), HasSubstr("empty lifetime"));
  const Problem twice{{{.id = 1, .bytes = 8, .life = {0, 5}, .second_life = Lifetime{4, 6}}}};
  EXPECT_THAT(Message(CheckPacking(twice, {{0}, 8})), HasSubstr("lifetimes that overlap"));
}

TEST(CheckPackingTest, AgreesWithAllPairsOnRandomOffsets) {
  constexpr std::uint64_t kSeed = 31;
  SCOPED_TRACE(kSeed);
  std::mt19937_64 random(kSeed);
  int valid = 0;
  for (int round = 0; round < 4000; ++round) {
    const Problem problem =
        RandomProblem({.blocks = 2 + round % 7, .ticks = 30, .max_bytes = 8, .second_lives = round % 2 == 0}, random);
    Packing packing{std::vector<Offset>(problem.blocks.size()), 60};
    for (Offset& offset : packing.offsets) offset = random() % 60;
    const bool expected = NaiveIsValid(problem, packing);
    valid += expected ? 1 : 0;
    ASSERT_EQ(CheckPacking(problem, packing).ok(), expected) << "round " << round;
  }
  EXPECT_GT(valid, 200) << "the rounds must see both answers";
  EXPECT_LT(valid, 3800);
}

// Places blocks one by one in random order, each at a random height at or above the lowest that is free.
Packing RandomValidPacking(const Problem& problem, std::mt19937_64& random) {
  Packing packing{.offsets = std::vector<Offset>(problem.blocks.size())};
  std::vector<std::size_t> placed(problem.blocks.size());
  std::iota(placed.begin(), placed.end(), std::size_t{0});
  std::shuffle(placed.begin(), placed.end(), random);
  for (std::size_t i = 0; i < placed.size(); ++i) {
    Offset& offset = packing.offsets[placed[i]];
    offset =
        NaiveLowestFit(problem, packing.offsets, {placed.data(), i}, placed[i], random() % 3 == 0 ? random() % 40 : 0);
    packing.height = std::max(packing.height, offset + problem.blocks[placed[i]].bytes);
  }
  return packing;
}

// One small change, which may or may not break the plan.
void Mutate(Problem& problem, Packing& packing, std::mt19937_64& random) {
  const std::size_t victim = random() % problem.blocks.size();
  const std::size_t other = random() % problem.blocks.size();
  Block& block = problem.blocks[victim];
  Offset& offset = packing.offsets[victim];
  switch (random() % 8) {
    case 0:
      offset += block.alignment;
      break;
    case 1:
      offset -= std::min(offset, block.alignment);
      break;
    case 2:
      offset += 1;
      break;
    case 3:
      packing.height -= 1;
      break;
    case 4:
      std::swap(offset, packing.offsets[other]);
      break;
    case 5:
      block.bytes += 1;
      break;
    case 6:
      if (!block.second_life) block.life.end += 1;
      break;
    default:
      if (!block.second_life) block.life.begin -= 1;
      break;
  }
}

TEST(CheckPackingTest, AgreesWithAllPairsOnValidPlansAndTheirMutations) {
  constexpr std::uint64_t kSeed = 32;
  SCOPED_TRACE(kSeed);
  std::mt19937_64 random(kSeed);
  int broken = 0;
  int whole = 0;
  for (int round = 0; round < 3000; ++round) {
    Problem problem = RandomProblem({.blocks = 2 + round % 30,
                                     .ticks = 40,
                                     .max_bytes = 12,
                                     .second_lives = round % 2 == 0,
                                     .max_alignment = round % 3 == 0 ? Bytes{8} : Bytes{1}},
                                    random);
    Packing packing = RandomValidPacking(problem, random);
    ASSERT_TRUE(NaiveIsValid(problem, packing)) << "round " << round;
    ASSERT_TRUE(CheckPacking(problem, packing).ok()) << "round " << round << ": " << CheckPacking(problem, packing);
    Mutate(problem, packing, random);
    const bool expected = NaiveIsValid(problem, packing);
    ++(expected ? whole : broken);
    const absl::Status status = CheckPacking(problem, packing);
    ASSERT_EQ(status.ok(), expected) << "round " << round << ": " << status;
  }
  EXPECT_GT(broken, 500) << "the mutations must break some plans";
  EXPECT_GT(whole, 500) << "and leave others";
}

// Blocks of which `kLive` are alive at every tick, side by side.
struct Steady {
  Problem problem;
  Packing packing;
};

Steady SteadyLoad(std::size_t blocks) {
  constexpr std::size_t kLive = 5000;
  Steady steady;
  for (std::size_t i = 0; i < blocks; ++i) {
    const auto begin = static_cast<Tick>(i);
    steady.problem.blocks.push_back({.id = i, .bytes = 512, .life = {begin, begin + static_cast<Tick>(kLive)}});
    steady.packing.offsets.push_back(i % kLive * 512);
  }
  steady.packing.height = kLive * 512;
  return steady;
}

double CpuSecondsOfCheck(const Steady& steady) {
  const std::clock_t start = std::clock();
  EXPECT_TRUE(CheckPacking(steady.problem, steady.packing).ok());
  return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
}

TEST(CheckPackingTest, AMillionBlocksTakeNearlyLinearTimeAndTheLastOverlapIsFound) {
  constexpr std::size_t kFew = 1u << 16;
  constexpr std::size_t kMany = 1u << 20;  // 16 times as many: all pairs would take 256 times as long
  const Steady few = SteadyLoad(kFew);
  Steady many = SteadyLoad(kMany);
  const double short_time = std::min({CpuSecondsOfCheck(few), CpuSecondsOfCheck(few), CpuSecondsOfCheck(few)});
  EXPECT_LT(CpuSecondsOfCheck(many), 64 * std::max(short_time, 1e-3));
  many.packing.offsets.back() = many.packing.offsets[kMany - 2];
  EXPECT_THAT(Message(CheckPacking(many.problem, many.packing)),
              AllOf(HasSubstr("block 1048574 "), HasSubstr("block 1048575 ")));
}

}  // namespace
}  // namespace stalloc::planner
