#include <gtest/gtest.h>

#include "allocator/backing/idle_chunks.h"

namespace stalloc {
namespace {

constexpr std::uint64_t kRequests = 100;  // of an iteration
constexpr std::size_t kMany = tuning::kManyMoved;

TEST(MovePaceTest, TellsOfTheThirdBusyIterationInARowAndThenCountsAnew) {
  MovePace pace(kRequests);
  EXPECT_FALSE(pace.Add(710, kMany + 5));
  EXPECT_FALSE(pace.Add(820, kMany));
  EXPECT_FALSE(pace.Add(890, 2)) << "kMany + 2 in this one";
  EXPECT_FALSE(pace.Add(910, kMany)) << "not yet more than kMany";
  EXPECT_TRUE(pace.Add(930, 1));
  EXPECT_FALSE(pace.Add(940, 2 * kMany)) << "counted anew";
  EXPECT_FALSE(pace.Add(1000, 2 * kMany));
  EXPECT_TRUE(pace.Add(1100, 2 * kMany));
}

TEST(MovePaceTest, AQuietIterationEndsARow) {
  MovePace pace(kRequests);
  for (std::uint64_t request = 0; request < 40 * kRequests; request += 3 * kRequests) {
    EXPECT_FALSE(pace.Add(request, 2 * kMany));
    EXPECT_FALSE(pace.Add(request + kRequests, 2 * kMany));
  }
  MovePace other(kRequests);
  for (std::uint64_t iteration = 0; iteration < 40; ++iteration) {
    EXPECT_FALSE(other.Add(iteration * kRequests, iteration % 3 == 2 ? kMany : kMany + 1)) << "kMany are not many";
  }
}

TEST(MovePaceTest, AnIterationMakesSoManyMovesAndTheNextOneMore) {
  MovePace pace(kRequests);
  for (int i = 0; i < tuning::kMostMoves; ++i) {
    ASSERT_TRUE(pace.MayMove(2 * kRequests + 7)) << i;
    (void)pace.Add(2 * kRequests + 7, 1);
  }
  EXPECT_FALSE(pace.MayMove(3 * kRequests - 1));
  EXPECT_TRUE(pace.MayMove(3 * kRequests));
}

TEST(MovePaceTest, APlanWithoutACycleHasIterationsOfARequest) {
  MovePace pace(0);
  EXPECT_FALSE(pace.Add(7, kMany + 1));
  EXPECT_FALSE(pace.Add(8, kMany + 1));
  EXPECT_TRUE(pace.Add(9, kMany + 1));
}

}  // namespace
}  // namespace stalloc
