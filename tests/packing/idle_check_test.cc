#include "planner/packing/idle_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "planner/packing/size_first_fit.h"
#include "tests/packing/naive.h"

namespace stalloc::planner {
namespace {

using testing::AllOf;
using testing::HasSubstr;

bool NaiveMeet(const IdleRange& idle, const UsedRange& used, Tick length) {
  if (idle.offset + idle.bytes <= used.offset || used.offset + used.bytes <= idle.offset) return false;
  for (Tick at = idle.begin; at < idle.begin + idle.length; ++at) {
    if (used.begin <= at % length && at % length < used.end) return true;
  }
  return false;
}

TEST(IdleCheckTest, AgreesWithAllPairs) {
  std::mt19937_64 random(81);
  const auto below = [&random](Tick limit) { return static_cast<Tick>(random() % static_cast<std::uint64_t>(limit)); };
  int clean = 0;
  for (int round = 0; round < 2000; ++round) {
    constexpr Tick kLength = 12;
    std::vector<IdleRange> idle;
    std::vector<UsedRange> used;
    for (Tick i = below(4); i >= 0; --i) {
      idle.push_back({static_cast<Offset>(below(20)), static_cast<Bytes>(1 + below(4)), below(kLength), 1 + below(4)});
    }
    for (Tick i = below(4); i >= 0; --i) {
      const Tick begin = below(kLength);
      used.push_back({begin, begin + 1 + below(kLength - begin), static_cast<Offset>(below(20)),
                      static_cast<Bytes>(1 + below(4))});
    }
    bool meet = false;
    for (const IdleRange& range : idle) {
      for (const UsedRange& user : used) meet |= NaiveMeet(range, user, kLength);
    }
    ASSERT_EQ(CheckIdleSpace(idle, used, kLength).ok(), !meet) << "round " << round;
    clean += !meet;
  }
  EXPECT_GT(clean, 400);
  EXPECT_LT(clean, 1600);
}

TEST(IdleCheckTest, WhatIsFoundIsIdleAndOneByteMoreIsNot) {
  std::mt19937_64 random(82);
  int stretched = 0;
  for (int round = 0; round < 60; ++round) {
    const Problem problem =
        RandomProblem({.blocks = 60, .ticks = 40, .max_bytes = 300, .second_lives = round % 2 == 0}, random);
    const Packing packing = MakeSizeFirstFit()->Solve(problem, {});
    const CycleAxis cycle{10, 40};
    const std::vector<UsedRange> used = UsedInCycle(problem, packing, cycle);
    std::vector<IdleRange> idle = FindIdleSpace(problem, packing, cycle, {.min_bytes = 1, .min_length = 1}).ranges;
    ASSERT_TRUE(CheckIdleSpace(idle, used, cycle.length()).ok()) << "round " << round;
    for (IdleRange& range : idle) {
      if (range.offset + range.bytes == packing.height) continue;
      ++range.bytes;
      ASSERT_FALSE(CheckIdleSpace(idle, used, cycle.length()).ok()) << "round " << round;
      --range.bytes;
      ++stretched;
    }
  }
  EXPECT_GT(stretched, 100);
}

TEST(IdleCheckTest, NamesBothSides) {
  const std::vector<IdleRange> idle = {{0, 8, 0, 2}, {100, 50, 8, 4}};
  const std::vector<UsedRange> used = {{1, 3, 120, 10}};
  EXPECT_THAT(std::string(CheckIdleSpace(idle, used, 10).message()),
              AllOf(HasSubstr("idle range 1 [100, 150) at positions [8, 12) is in use"),
                    HasSubstr("bytes [120, 130) at positions [1, 3)")));
}

TEST(IdleCheckTest, RefusesRangesOutsideOfTheCycle) {
  const auto is_fine = [](const IdleRange& range) {
    return CheckIdleSpace(std::vector<IdleRange>{range}, {}, 10).ok();
  };
  EXPECT_TRUE(is_fine({0, 1, 9, 10}));
  EXPECT_FALSE(is_fine({0, 1, 10, 1}));
  EXPECT_FALSE(is_fine({0, 1, -1, 1}));
  EXPECT_FALSE(is_fine({0, 1, 0, 11}));
  EXPECT_FALSE(is_fine({0, 1, 0, 0}));
  EXPECT_FALSE(is_fine({0, 0, 0, 1}));
}

}  // namespace
}  // namespace stalloc::planner
