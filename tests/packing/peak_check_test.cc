#include "planner/packing/pipeline/peak_check.h"

#include <gtest/gtest.h>

#include <random>

namespace stalloc::planner {
namespace {

constexpr Span kNow{0, 1};

RingWindow::Piece PieceOf(Bytes bytes) { return {.bytes = bytes, .alignment = 1, .span = kNow}; }

TEST(PeakCheckTest, AHoleThatIsCutInTwoHoldsNoGreatBlock) {
  // Bottom 10, ceiling 30: a long block of 8 leaves 12.
  RingWindow window;
  window.longs = {PieceOf(8)};
  window.shorts = {PieceOf(8), PieceOf(4)};
  const auto fits_with_long_at = [&](Offset offset) {
    return PeakCheck(window, 10, 30)
        .MayFit({.longs = {offset}, .shorts = {Revolution::kNotYet, Revolution::kNotYet}, .finished = 1});
  };
  EXPECT_TRUE(fits_with_long_at(10));
  EXPECT_TRUE(fits_with_long_at(14));
  EXPECT_FALSE(fits_with_long_at(15));
  EXPECT_FALSE(fits_with_long_at(16));
  EXPECT_TRUE(fits_with_long_at(18));
}

TEST(PeakCheckTest, WhatIsNotFinishedIsNotJudged) {
  RingWindow window;
  window.longs = {PieceOf(8)};
  window.shorts = {PieceOf(8), PieceOf(4)};
  PeakCheck check(window, 10, 30);
  EXPECT_TRUE(check.MayFit({.longs = {16}, .shorts = {Revolution::kNotYet, Revolution::kNotYet}, .finished = 0}));
}

// Pieces stacked in random order, with and without gaps: a layout that exists is never refused.
TEST(PeakCheckTest, NeverRefusesWhatFits) {
  std::mt19937_64 source(5);
  const auto below = [&](std::uint64_t n) { return source() % n; };
  for (int round = 0; round < 2000; ++round) {
    RingWindow window;
    Revolution revolution;
    const Bytes bottom = below(3);
    Offset top = bottom;
    const int pieces = 2 + static_cast<int>(below(14));
    for (int i = 0; i < pieces; ++i) {
      const Bytes bytes = 1 + below(9);
      switch (below(3)) {
        case 0:
          window.obstacles.push_back({kNow, top, top + bytes});
          break;
        case 1:
          window.longs.push_back(PieceOf(bytes));
          revolution.longs.push_back(top);
          break;
        default:
          window.shorts.push_back(PieceOf(bytes));
          revolution.shorts.push_back(Revolution::kNotYet);
      }
      top += bytes;
    }
    revolution.finished = 1;
    const Bytes gap = below(2);
    ASSERT_TRUE(PeakCheck(window, bottom, top + gap).MayFit(revolution)) << "round " << round;
  }
}

}  // namespace
}  // namespace stalloc::planner
