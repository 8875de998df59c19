#include "allocator/engine/extents.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

namespace stalloc {
namespace extents_test {

using Ranges = std::vector<std::pair<std::uint32_t, std::uint32_t>>;
constexpr std::uint32_t kEnd = 96;

Ranges FreeIn(Extents::Walk& walk, std::uint32_t lo, std::uint32_t hi) {
  Ranges ranges;
  walk.ForEachFree(lo, hi, [&](std::uint32_t begin, std::uint32_t end) {
    ranges.emplace_back(begin, end);
    return true;
  });
  return ranges;
}

// Ranges between the extents, without empty ones; the last one ends at kEnd.
Ranges Between(const Extents& extents) {
  Ranges ranges;
  const Extents::Extent* below = extents.Between();
  for (std::size_t i = 0; i <= extents.size(); ++i, ++below) {
    const std::uint32_t hi = std::min(below[1].lo, kEnd);
    if (hi > below[0].hi) ranges.emplace_back(below[0].hi, hi);
  }
  return ranges;
}

Ranges FreeOf(const std::vector<bool>& taken, std::uint32_t begin, std::uint32_t end) {
  Ranges ranges;
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

TEST(ExtentsTest, AgreesWithOneBitAGranule) {
  std::mt19937_64 random(1);
  const auto number = [&](std::uint32_t most) { return static_cast<std::uint32_t>(random() % most); };
  Extents extents;
  std::vector<bool> taken(kEnd);
  Ranges blocks;
  for (int step = 0; step < 4000; ++step) {
    const std::uint32_t lo = number(kEnd - 8);
    const std::uint32_t hi = lo + 1 + number(7);
    bool idle = true;
    for (std::uint32_t at = lo; at < hi; ++at) idle = idle && !taken[at];
    if (idle) {
      extents.Add(lo, hi);
      blocks.emplace_back(lo, hi);
    } else if (!blocks.empty()) {
      std::swap(blocks[number(static_cast<std::uint32_t>(blocks.size()))], blocks.back());
      extents.Remove(blocks.back().first, blocks.back().second);
      for (std::uint32_t at = blocks.back().first; at < blocks.back().second; ++at) taken[at] = false;
      blocks.pop_back();
    }
    if (idle) {
      for (std::uint32_t at = lo; at < hi; ++at) taken[at] = true;
    }
    // Two ranges, as the gaps of a window are.
    Extents::Walk walk(extents);
    for (const auto& [begin, end] : Ranges{{number(20), 30 + number(20)}, {60, 60 + number(30)}}) {
      ASSERT_EQ(FreeIn(walk, begin, end), FreeOf(taken, begin, end)) << "step " << step;
    }
    ASSERT_EQ(Between(extents), FreeOf(taken, 0, kEnd)) << "step " << step;
  }
}

TEST(ExtentsTest, BlocksThatTouchAreOne) {
  Extents extents;
  extents.Add(0, 2);
  extents.Add(4, 6);
  EXPECT_EQ(extents.size(), 2u);
  extents.Add(2, 4);
  EXPECT_EQ(extents.size(), 1u);
  extents.Remove(1, 5);
  EXPECT_EQ(extents.size(), 2u);
}

TEST(ExtentsTest, AVisitorCanEndTheWalk) {
  Extents extents;
  extents.Add(2, 4);
  int visits = 0;
  Extents::Walk(extents).ForEachFree(0, 8, [&](std::uint32_t, std::uint32_t) {
    ++visits;
    return false;
  });
  EXPECT_EQ(visits, 1);
}

}  // namespace extents_test
}  // namespace stalloc
