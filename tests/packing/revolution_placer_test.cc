#include "planner/packing/pipeline/revolution_placer.h"

#include <gtest/gtest.h>

namespace stalloc::planner {
namespace {

constexpr Offset kNotYet = Revolution::kNotYet;

// Long blocks of 4, 4, 4 and 2 below a ceiling of 10; the third begins at 3.
RingWindow FourLongs() {
  RingWindow window;
  window.longs = {{.bytes = 4, .alignment = 1, .span = {0, 6}},
                  {.bytes = 4, .alignment = 1, .span = {1, 7}},
                  {.bytes = 4, .alignment = 1, .span = {3, 8}},
                  {.bytes = 2, .alignment = 1, .span = {2, 9}}};
  return window;
}

TEST(RevolutionPlacerTest, ClosuresSayWhereARevolutionBeginsAndEnds) {
  const RingWindow window = FourLongs();
  RevolutionPlacer placer(0, 10);
  const auto longs_of = [&](const RingClosure& closure) { return placer.Place(window, closure)->longs; };
  using Offsets = std::vector<Offset>;
  EXPECT_EQ(longs_of({.shift = 0, .early = 0, .fill = false}), (Offsets{0, 4, kNotYet, kNotYet}));
  EXPECT_EQ(longs_of({.shift = 0, .early = 0, .fill = true}), (Offsets{0, 4, kNotYet, 8}));
  EXPECT_EQ(longs_of({.shift = 1, .early = 0, .fill = true}), (Offsets{1, 5, kNotYet, kNotYet}));
  EXPECT_EQ(longs_of({.shift = 0, .early = 1, .fill = true}), (Offsets{0, kNotYet, 4, 8}));
  EXPECT_FALSE(placer.Place(window, {.shift = 0, .early = 2, .fill = true}));
}

TEST(RevolutionPlacerTest, FinishedIsWhatEndsBeforeTheNextRevolutionBegins) {
  RingWindow window = FourLongs();
  window.shorts = {{.bytes = 2, .alignment = 1, .span = {2, 3}}, {.bytes = 2, .alignment = 1, .span = {2, 4}}};
  RevolutionPlacer placer(0, 10);
  const auto revolution = placer.Place(window, {.shift = 0, .early = 0, .fill = false});
  ASSERT_TRUE(revolution);
  EXPECT_EQ(revolution->finished, 2u);  // where the fourth begins
  EXPECT_EQ(revolution->shorts, (std::vector<Offset>{kNotYet, kNotYet}));
  const auto filled = placer.Place(window, {.shift = 0, .early = 0, .fill = true});
  EXPECT_FALSE(filled) << "the short block of 2 has no room beside 4, 4 and 2";
}

TEST(RevolutionPlacerTest, ARingThatGoesOnMustGetOn) {
  RingWindow window = FourLongs();
  window.obstacles = {{{0, 6}, 0, 7}};
  RevolutionPlacer placer(0, 10);
  EXPECT_FALSE(placer.Place(window, {.shift = 0, .early = 0, .fill = false}));
}

// The first goes to 2, above what will be in its way, and leaves 6 of 10. Tried again, the block of 8 goes first.
TEST(RevolutionPlacerTest, AShortBlockWithoutRoomIsTriedFirst) {
  RingWindow window;
  window.obstacles = {{{8, 9}, 0, 2}};
  window.shorts = {{.bytes = 2, .alignment = 1, .span = {1, 9}}, {.bytes = 8, .alignment = 1, .span = {1, 3}}};
  RevolutionPlacer placer(0, 10);
  const auto revolution = placer.Place(window, {.shift = 0, .early = 0, .fill = false});
  ASSERT_TRUE(revolution);
  EXPECT_EQ(revolution->shorts, (std::vector<Offset>{8, 0}));
}

}  // namespace
}  // namespace stalloc::planner
