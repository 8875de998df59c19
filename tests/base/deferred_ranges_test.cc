#include "allocator/base/deferred_ranges.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

namespace stalloc {
namespace deferred_ranges_test {

// Blocks come and go on a line; those that touch stay two.
class Line {
 public:
  Line(std::uint32_t end, std::uint64_t seed) : end_(end), random_(seed), ranges_(end) {}

  std::uint32_t Number(std::uint32_t most) { return static_cast<std::uint32_t>(random_() % most); }

  void Come(std::uint32_t longest) {
    const std::uint32_t lo = Number(end_ - 1);
    const std::uint32_t hi = std::min(lo + 1 + Number(longest), end_);
    const auto behind = std::ranges::lower_bound(blocks_, hi, {}, &IndexRange::lo);
    if (behind != blocks_.begin() && (behind - 1)->hi > lo) return;
    blocks_.insert(behind, {lo, hi});
    ranges_.Add(lo, hi);
  }
  void Go() {
    if (blocks_.empty()) return;
    const auto block = blocks_.begin() + Number(static_cast<std::uint32_t>(blocks_.size()));
    ranges_.Remove(block->lo, block->hi);
    blocks_.erase(block);
  }
  [[nodiscard]] std::vector<IndexRange> Found(std::uint32_t end, std::uint32_t least, std::size_t most) {
    const auto all = [this](auto&& visit) {
      ++times_asked_;
      for (auto block = blocks_.rbegin(); block != blocks_.rend(); ++block) visit(block->lo, block->hi);
    };
    std::vector<IndexRange> gaps;
    ranges_.Now(all).ForEachBetweenDownwards(end, least, [&](IndexRange gap) {
      gaps.push_back(gap);
      return gaps.size() < most;
    });
    return gaps;
  }
  [[nodiscard]] std::vector<IndexRange> Expected(std::uint32_t end, std::uint32_t least, std::size_t most) const {
    std::vector<IndexRange> gaps;
    std::uint32_t top = end;
    for (std::size_t i = blocks_.size() + 1; i-- > 0 && gaps.size() < most;) {
      const IndexRange below = i > 0 ? blocks_[i - 1] : IndexRange{0, 0};
      if (below.lo >= end) continue;
      if (top >= below.hi && top - below.hi >= least) gaps.push_back({below.hi, top});
      top = below.lo;
    }
    return gaps;
  }
  [[nodiscard]] int times_asked() const { return times_asked_; }

 private:
  const std::uint32_t end_;
  std::mt19937_64 random_;
  DeferredRanges ranges_;
  std::vector<IndexRange> blocks_;  // ascending
  int times_asked_ = 0;
};

// Looked at often, and so seldom that more has changed than is remembered.
TEST(DeferredRangesTest, WhatLiesBetweenThemIsWhatALookAtEachBlockFinds) {
  std::size_t found = 0;
  for (const std::uint32_t end : {7u, 300u, 4096u, 70'000u, 1u << 20}) {
    for (const int every : {1, 5, 20'000}) {
      Line line(end, end + static_cast<std::uint32_t>(every));
      for (int step = 0; step < 60'000; ++step) {
        const bool fills = step / 500 % 2 == 0;
        line.Number(4) == 0 || !fills ? line.Go() : line.Come(1 + end / 50);
        if (!fills && step % 3 == 0) line.Come(1 + end / 50);
        if (step % every != 0 || (every == 1 && step > 4000)) continue;
        const std::uint32_t below = step % 2 == 0 ? end : 1 + line.Number(end);
        const std::uint32_t least = 1 + line.Number(step % 10 == 0 ? 40 : end);
        const std::size_t most = 1 + line.Number(40);
        const std::vector<IndexRange> expected = line.Expected(below, least, most);
        ASSERT_EQ(line.Found(below, least, most), expected) << end << ", every " << every << ", step " << step;
        found += expected.size();
      }
      EXPECT_EQ(line.times_asked() > 0, every == 20'000);
    }
  }
  EXPECT_GT(found, 10'000u);
}

TEST(DeferredRangesTest, TooManyAreMissingAndNothingElse) {
  DeferredRanges ranges(4);
  const auto none = [](auto&& /*visit*/) { FAIL(); };
  for (std::uint32_t lo = 0; lo < 12; lo += 2) ranges.Add(lo, lo + 1);
  const RangeSet& now = ranges.Now(none);
  EXPECT_TRUE(now.Touches(6, 7));
  EXPECT_FALSE(now.Touches(7, 12));
  for (std::uint32_t lo = 0; lo < 12; lo += 2) ranges.Remove(lo, lo + 1);
  EXPECT_TRUE(ranges.Now(none).empty());
}

}  // namespace deferred_ranges_test
}  // namespace stalloc
