#include "allocator/base/range_set.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

namespace stalloc {
namespace {

using Pairs = std::vector<std::pair<std::uint32_t, std::uint32_t>>;
constexpr std::size_t kMost = 8192;
constexpr std::uint32_t kEnd = 96;

// What lies between them, without empty ranges; the last one ends at kEnd.
Pairs Between(const RangeSet& ranges) {
  Pairs between;
  const IndexRange* below = ranges.BetweenFrom(0);
  for (std::size_t i = 0; i <= ranges.size(); ++i, ++below) {
    const std::uint32_t hi = std::min(below[1].lo, kEnd);
    if (hi > below[0].hi) between.emplace_back(below[0].hi, hi);
  }
  return between;
}

Pairs FreeOf(const std::vector<bool>& taken, std::uint32_t begin, std::uint32_t end) {
  Pairs ranges;
  for (std::uint32_t at = begin; at < end; ++at) {
    if (taken[at]) continue;
    if (!ranges.empty() && ranges.back().second == at) {
      ++ranges.back().second;
    } else {
      ranges.emplace_back(at, at + 1);
    }
  }
  return ranges;
}

TEST(RangeSetTest, WhatLiesBetweenThemIsWhatNoBlockHas) {
  std::mt19937_64 random(1);
  const auto number = [&](std::uint32_t most) { return static_cast<std::uint32_t>(random() % most); };
  RangeSet ranges(kMost);
  std::vector<bool> taken(kEnd);
  Pairs blocks;
  for (int step = 0; step < 4000; ++step) {
    const std::uint32_t lo = number(kEnd - 8);
    const std::uint32_t hi = lo + 1 + number(7);
    bool idle = true;
    for (std::uint32_t at = lo; at < hi; ++at) idle = idle && !taken[at];
    if (idle) {
      ranges.Add(lo, hi);
      blocks.emplace_back(lo, hi);
    } else if (!blocks.empty()) {
      std::swap(blocks[number(static_cast<std::uint32_t>(blocks.size()))], blocks.back());
      ranges.Remove(blocks.back().first, blocks.back().second);
      for (std::uint32_t at = blocks.back().first; at < blocks.back().second; ++at) taken[at] = false;
      blocks.pop_back();
    }
    if (idle) {
      for (std::uint32_t at = lo; at < hi; ++at) taken[at] = true;
    }
    ASSERT_EQ(Between(ranges), FreeOf(taken, 0, kEnd)) << "step " << step;
  }
}

TEST(RangeSetTest, WhatIsLongEnoughBetweenThemInParts) {
  std::mt19937 random(3);
  for (int round = 0; round < 2000; ++round) {
    RangeSet ranges(kMost);
    std::vector<bool> taken(kEnd);
    for (std::uint32_t i = random() % 12; i > 0; --i) {
      const std::uint32_t lo = random() % kEnd;
      const std::uint32_t hi = std::min<std::uint32_t>(lo + 1 + random() % 9, kEnd);
      if (ranges.Add(lo, hi)) std::fill(taken.begin() + lo, taken.begin() + hi, true);
    }
    std::vector<IndexRange> parts;
    for (std::uint32_t lo = random() % 10; lo < kEnd; lo = parts.back().hi + random() % 6) {
      parts.push_back({lo, std::min<std::uint32_t>(lo + 1 + random() % 30, kEnd)});
    }
    const std::uint32_t end = random() % (kEnd + 1);
    const std::uint32_t least = 1 + random() % 6;
    Pairs expected;
    for (const IndexRange& part : parts) {
      for (const auto& [lo, hi] : FreeOf(taken, part.lo, std::min(part.hi, end))) {
        if (hi - lo >= least) expected.emplace_back(lo, hi);
      }
    }
    if (const std::size_t most = 1 + random() % 8; expected.size() > most) expected.resize(most);
    Pairs found;
    if (!parts.empty()) {
      ranges.ForEachBetween(parts, end, least, [&](std::uint32_t lo, std::uint32_t hi) {
        found.emplace_back(lo, hi);
        return found.size() < std::max<std::size_t>(expected.size(), 1);
      });
    }
    ASSERT_EQ(found, expected) << "round " << round;
  }
}

TEST(RangeSetTest, BlocksThatTouchAreOne) {
  RangeSet ranges(kMost);
  ranges.Add(0, 2);
  ranges.Add(4, 6);
  EXPECT_EQ(ranges.size(), 2u);
  ranges.Add(2, 4);
  EXPECT_EQ(ranges.size(), 1u);
  ranges.Remove(1, 5);
  EXPECT_EQ(ranges.size(), 2u);
}

TEST(RangeSetTest, TouchesWhatOverlapsAndNothingElse) {
  RangeSet ranges(kMost);
  EXPECT_TRUE(ranges.empty());
  EXPECT_TRUE(ranges.Add(20, 30));
  EXPECT_TRUE(ranges.Add(10, 15));
  EXPECT_FALSE(ranges.Add(14, 16));
  EXPECT_FALSE(ranges.Touches(15, 20));
  EXPECT_TRUE(ranges.Touches(14, 20));
  EXPECT_TRUE(ranges.Touches(0, 100));
  EXPECT_FALSE(ranges.Touches(30, 31));
  ranges.Remove(10, 15);
  EXPECT_FALSE(ranges.Touches(0, 20));
  ranges.Remove(0, 100);
  EXPECT_TRUE(ranges.empty());
}

TEST(RangeSetTest, AgreesWithOneFlagAGranule) {
  constexpr std::uint32_t kSize = 200;
  std::mt19937 random(5);
  RangeSet ranges(kMost);
  std::vector<bool> naive(kSize, false);
  for (int step = 0; step < 20000; ++step) {
    const std::uint32_t lo = random() % kSize;
    const std::uint32_t hi = lo + 1 + random() % std::min(kSize - lo, 20u);
    const auto begin = naive.begin() + lo;
    const auto end = naive.begin() + hi;
    const bool touches = std::find(begin, end, true) != end;
    ASSERT_EQ(ranges.Touches(lo, hi), touches);
    if (random() % 2 == 0) {
      ASSERT_EQ(ranges.Add(lo, hi), !touches);
      if (!touches) std::fill(begin, end, true);
    } else {
      ranges.Remove(lo, hi);
      std::fill(begin, end, false);
    }
    // The last range in [lo, hi), as far as it goes on both sides.
    const IndexRange* const found = ranges.LastIn(lo, hi);
    std::uint32_t last = hi;
    while (last > lo && !naive[last - 1]) --last;
    ASSERT_EQ(found != nullptr, last > lo);
    if (found == nullptr) continue;
    std::uint32_t first = last;
    while (first > 0 && naive[first - 1]) --first;
    while (last < kSize && naive[last]) ++last;
    ASSERT_EQ(found->lo, first);
    ASSERT_EQ(found->hi, last);
  }
}

TEST(RangeSetTest, IsFullAtSomePoint) {
  RangeSet ranges(kMost);
  for (std::uint32_t i = 0; i < kMost; ++i) ASSERT_TRUE(ranges.Add(2 * i, 2 * i + 1));
  EXPECT_FALSE(ranges.Add(1u << 30, (1u << 30) + 1));
  EXPECT_TRUE(ranges.Add(1, 2)) << "joins two";
  ranges.Remove(1, 2);
  EXPECT_TRUE(ranges.Add(2 * kMost - 1, 2 * kMost + 8)) << "joins one";
  const std::uint32_t inside = 2 * kMost;
  ranges.Remove(inside, inside + 1);
  EXPECT_TRUE(ranges.Touches(inside, inside + 1)) << "no room for its two halves: it stays";
  ranges.Remove(0, 1);
  ranges.Remove(inside, inside + 1);
  EXPECT_FALSE(ranges.Touches(inside, inside + 1));
  EXPECT_TRUE(ranges.Touches(inside + 1, inside + 2));
}

}  // namespace
}  // namespace stalloc
