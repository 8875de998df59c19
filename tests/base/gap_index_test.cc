#include "allocator/base/gap_index.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <random>
#include <vector>

namespace stalloc {
namespace gap_index_test {

// A line of a few parts and groups, or of many, on which ranges come and go.
class Line {
 public:
  Line(std::uint32_t end, std::uint64_t seed) : end_(end), random_(seed), index_(end) {}

  std::uint32_t Number(std::uint32_t most) { return static_cast<std::uint32_t>(random_() % most); }

  void Come(std::uint32_t longest) {
    const std::uint32_t lo = Number(end_ - 1);
    const std::uint32_t hi = std::min(lo + 1 + Number(longest), end_);
    if (Last(lo, hi).hi == 0) ranges_.insert(std::ranges::lower_bound(ranges_, IndexRange{lo, hi}), {lo, hi});
  }
  void Go() {
    if (ranges_.empty()) return;
    const auto range = ranges_.begin() + Number(static_cast<std::uint32_t>(ranges_.size()));
    index_.Remove(range->lo, range->hi, ++stamp_);
    ranges_.erase(range);
  }
  [[nodiscard]] std::vector<IndexRange> Found(std::uint32_t end, std::uint32_t least, std::size_t most) {
    std::vector<IndexRange> gaps;
    index_.ForEachDownwards(
        end, least, stamp_,
        [this](std::uint32_t lo, std::uint32_t hi) {
          ++asked_;
          return Last(lo, hi);
        },
        [&](IndexRange gap) {
          gaps.push_back(gap);
          return gaps.size() < most;
        });
    return gaps;
  }
  [[nodiscard]] std::vector<IndexRange> Expected(std::uint32_t end, std::uint32_t least, std::size_t most) const {
    std::vector<IndexRange> gaps;
    std::uint32_t top = end;
    for (std::size_t i = ranges_.size() + 1; i-- > 0 && gaps.size() < most;) {
      const IndexRange below = i > 0 ? ranges_[i - 1] : IndexRange{0, 0};
      if (below.lo >= end) continue;
      if (top >= below.hi && top - below.hi >= least) gaps.push_back({below.hi, top});
      top = below.lo;
    }
    return gaps;
  }
  [[nodiscard]] std::size_t asked() const { return asked_; }

 private:
  [[nodiscard]] IndexRange Last(std::uint32_t lo, std::uint32_t hi) const {
    const auto behind = std::ranges::lower_bound(ranges_, hi, {}, &IndexRange::lo);
    return behind != ranges_.begin() && (behind - 1)->hi > lo ? *(behind - 1) : IndexRange{};
  }

  const std::uint32_t end_;
  std::mt19937_64 random_;
  GapIndex index_;
  std::vector<IndexRange> ranges_;  // ascending
  std::uint64_t stamp_ = 0;
  std::size_t asked_ = 0;
};

TEST(GapIndexTest, FindsTheGapsThatALookAtEachRangeFinds) {
  std::size_t found = 0;
  for (const std::uint32_t end : {7u, 300u, 4096u, 70'000u, 1u << 20}) {
    for (const std::uint32_t longest : {2u, 200u, 30'000u}) {
      Line line(end, end + longest);
      for (int step = 0; step < 4000; ++step) {
        const bool fills = step / 500 % 2 == 0;
        line.Number(4) == 0 || !fills ? line.Go() : line.Come(longest);
        if (!fills && step % 3 == 0) line.Come(longest);
        if (step % 5 != 0) continue;
        const std::uint32_t below = step % 2 == 0 ? end : 1 + line.Number(end);
        const std::uint32_t least = 1 + line.Number(step % 10 == 0 ? 40 : end);
        const std::size_t most = 1 + line.Number(40);
        const std::vector<IndexRange> expected = line.Expected(below, least, most);
        ASSERT_EQ(line.Found(below, least, most), expected) << end << ", " << longest << ", step " << step;
        found += expected.size();
      }
    }
  }
  EXPECT_GT(found, 10'000u);
}

TEST(GapIndexTest, LooksAtWhatHasGoneAlone) {
  Line line(1u << 20, 3);
  for (int i = 0; i < 20'000; ++i) line.Come(300);
  (void)line.Found(1u << 20, 1u << 19, 1);
  const std::size_t all = line.asked();
  line.Go();
  (void)line.Found(1u << 20, 1u << 19, 1);
  EXPECT_GT(all, 4000u);
  EXPECT_LT(line.asked() - all, 20u);
}

// Never earlier than what went there last; later only by what went near it.
TEST(GapIndexTest, TheLastThatWentFromAPlaceIsNotMissed) {
  std::mt19937_64 random(7);
  for (const std::uint32_t end : {1u, 100u, 4095u, 70'000u, 1u << 20}) {
    GapIndex index(end);
    const std::uint32_t part = std::bit_floor(std::max(end / 4096, 1u));
    std::vector<std::uint64_t> removed(end, 0);
    const auto most = [&](std::uint32_t lo, std::uint32_t hi) {
      return *std::max_element(removed.begin() + lo, removed.begin() + std::min(hi, end));
    };
    for (std::uint64_t stamp = 1; stamp <= 300; ++stamp) {
      const auto lo = static_cast<std::uint32_t>(random() % end);
      const std::uint32_t hi = lo + 1 + static_cast<std::uint32_t>(random() % std::min(end - lo, 5 * part));
      if (random() % 2 == 0) {
        index.Remove(lo, hi, stamp);
        std::fill(removed.begin() + lo, removed.begin() + hi, stamp);
      } else {
        EXPECT_GE(index.LastRemoved(lo, hi), most(lo, hi));
        EXPECT_LE(index.LastRemoved(lo, hi), most(lo / part * part, (hi + part - 1) / part * part));
      }
    }
  }
}

}  // namespace gap_index_test
}  // namespace stalloc
