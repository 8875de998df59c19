#include "planner/packing/idle_space.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <tuple>

#include "planner/packing/size_first_fit.h"
#include "tests/packing/naive.h"

namespace stalloc::planner {
namespace {

constexpr IdleSpaceOptions kAll = {.min_bytes = 1, .min_length = 1};

using Key = std::tuple<Offset, Bytes, Tick, Tick>;

std::set<Key> Keys(const std::vector<IdleRange>& ranges) {
  std::set<Key> keys;
  for (const IdleRange& range : ranges) keys.insert({range.offset, range.bytes, range.begin, range.length});
  return keys;
}

// Bytes taken at each position of the cycle.
class Grid {
 public:
  Grid(const Problem& problem, const Packing& packing, const CycleAxis& cycle)
      : length_(cycle.length()),
        height_(packing.height),
        taken_(static_cast<std::size_t>(length_), std::vector<bool>(height_)) {
    for (Tick at = 0; at < length_; ++at) {
      const Block moment{.life = {cycle.begin + at, cycle.begin + at + 1}};
      for (std::size_t i = 0; i < problem.blocks.size(); ++i) {
        if (!NaiveConflict(problem.blocks[i], moment)) continue;
        for (Bytes byte = 0; byte < problem.blocks[i].bytes; ++byte) Row(at)[packing.offsets[i] + byte] = true;
      }
    }
  }

  [[nodiscard]] bool IsFree(Tick at, Offset low, Offset high) const {
    const std::vector<bool>& row = taken_[static_cast<std::size_t>((at % length_ + length_) % length_)];
    for (Offset byte = low; byte < high; ++byte) {
      if (row[byte]) return false;
    }
    return true;
  }

  // Every free range of every position, stretched one position at a time.
  [[nodiscard]] std::set<Key> Stretched() const {
    std::set<Key> keys;
    for (Tick at = 0; at < length_; ++at) {
      for (Offset low = 0; low < height_; ++low) {
        if (!IsFree(at, low, low + 1) || (low > 0 && IsFree(at, low - 1, low))) continue;
        Offset high = low + 1;
        while (high < height_ && IsFree(at, high, high + 1)) ++high;
        Tick begin = at;
        Tick end = at + 1;
        while (end - begin < length_ && IsFree(begin - 1, low, high)) --begin;
        while (end - begin < length_ && IsFree(end, low, high)) ++end;
        const bool whole = end - begin == length_;
        keys.insert({low, high - low, whole ? 0 : (begin + length_) % length_, end - begin});
      }
    }
    return keys;
  }

  [[nodiscard]] double Idle() const {
    double idle = 0;
    for (Tick at = 0; at < length_; ++at) {
      for (Offset byte = 0; byte < height_; ++byte) idle += IsFree(at, byte, byte + 1);
    }
    return idle;
  }

  // Area of the union of ranges.
  [[nodiscard]] double Covered(const std::vector<IdleRange>& ranges) const {
    std::set<std::pair<Tick, Offset>> covered;
    for (const IdleRange& range : ranges) {
      for (Tick at = range.begin; at < range.begin + range.length; ++at) {
        for (Offset byte = range.offset; byte < range.offset + range.bytes; ++byte)
          covered.insert({at % length_, byte});
      }
    }
    return static_cast<double>(covered.size());
  }

 private:
  std::vector<bool>& Row(Tick at) { return taken_[static_cast<std::size_t>(at)]; }

  Tick length_;
  Bytes height_;
  std::vector<std::vector<bool>> taken_;
};

// Some blocks of the cycle wrap around its end, some live through it, some end in it that began before.
Problem RandomCycle(const CycleAxis& cycle, std::mt19937_64& random) {
  Problem problem = RandomProblem(
      {.blocks = 3 + static_cast<int>(random() % 12), .ticks = static_cast<int>(cycle.end), .max_bytes = 9}, random);
  for (Block& block : problem.blocks) {
    if (block.life.end == cycle.end && block.life.begin > cycle.begin + 1 && random() % 2 == 0) {
      block.second_life = Lifetime{cycle.begin, cycle.begin + 1 + static_cast<Tick>(random() % 2)};
      if (block.second_life->end > block.life.begin) block.second_life.reset();
    }
  }
  return problem;
}

TEST(IdleSpaceTest, AgreesWithAWalkOverEveryByteAndPosition) {
  std::mt19937_64 random(71);
  for (int round = 0; round < 300; ++round) {
    const CycleAxis cycle{static_cast<Tick>(random() % 6), 8 + static_cast<Tick>(random() % 12)};
    const Problem problem = RandomCycle(cycle, random);
    const Packing packing = MakeSizeFirstFit()->Solve(problem, {});
    const Grid grid(problem, packing, cycle);
    const IdleSpace space = FindIdleSpace(problem, packing, cycle, kAll);
    ASSERT_EQ(Keys(space.ranges), grid.Stretched()) << "round " << round;
    ASSERT_EQ(space.ranges.size(), Keys(space.ranges).size()) << "a range is listed twice, round " << round;
    ASSERT_EQ(space.idle, grid.Idle()) << "round " << round;
    ASSERT_EQ(space.described, space.idle) << "round " << round;
    ASSERT_EQ(space.coverage(), 1.0);
  }
}

TEST(IdleSpaceTest, ReducedListsSayHowMuchTheyStillDescribe) {
  std::mt19937_64 random(72);
  for (int round = 0; round < 100; ++round) {
    const CycleAxis cycle{2, 18};
    const Problem problem = RandomCycle(cycle, random);
    const Packing packing = MakeSizeFirstFit()->Solve(problem, {});
    const IdleSpace space = FindIdleSpace(problem, packing, cycle, {.min_bytes = 3, .min_length = 2, .max_ranges = 4});
    ASSERT_LE(space.ranges.size(), 4u);
    for (std::size_t i = 0; i < space.ranges.size(); ++i) {
      EXPECT_GE(space.ranges[i].bytes, 3u);
      EXPECT_GE(space.ranges[i].length, 2);
      EXPECT_TRUE(i == 0 || space.ranges[i - 1].begin <= space.ranges[i].begin);
    }
    ASSERT_EQ(space.described, Grid(problem, packing, cycle).Covered(space.ranges)) << "round " << round;
  }
}

TEST(IdleSpaceTest, ARangeWrapsWhereTheCycleDoes) {
  // One block in the middle of a cycle of ten: its bytes are idle from position 6 on until position 4 of the next.
  const Problem problem{{{.bytes = 5, .life = {104, 106}}, {.bytes = 3, .life = {100, 110}}}};
  const IdleSpace space = FindIdleSpace(problem, {{3, 0}, 8}, {100, 110}, kAll);
  EXPECT_EQ(space.ranges, (std::vector<IdleRange>{{3, 5, 6, 8}}));
}

TEST(IdleSpaceTest, WhatIsNeverUsedIsIdleThroughout) {
  const Problem problem{{{.bytes = 5, .life = {0, 1}}}};
  const IdleSpace space = FindIdleSpace(problem, {{0}, 5}, {1, 7}, kAll);
  EXPECT_EQ(space.ranges, (std::vector<IdleRange>{{0, 5, 0, 6}}));
  EXPECT_EQ(space.idle, 30.0);
}

TEST(IdleSpaceTest, AFullArenaHasNone) {
  const Problem problem{{{.bytes = 5, .life = {0, 9}}}};
  const IdleSpace space = FindIdleSpace(problem, {{0}, 5}, {2, 9}, kAll);
  EXPECT_TRUE(space.ranges.empty());
  EXPECT_EQ(space.coverage(), 1.0);
}

}  // namespace
}  // namespace stalloc::planner
