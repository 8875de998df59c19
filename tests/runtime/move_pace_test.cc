#include "allocator/backing/move_pace.h"

#include <gtest/gtest.h>

namespace stalloc {
namespace {

constexpr std::uint64_t kRequests = 100;  // of an iteration
constexpr std::size_t kMany = MovePace::kMany;

TEST(MovePaceTest, TellsOfTheThirdBusyIterationInARowAndThenCountsAnew) {
  MovePace pace(kRequests);
  EXPECT_EQ(pace.Add(710, kMany + 5), 0u);
  EXPECT_EQ(pace.Add(820, kMany), 0u);
  EXPECT_EQ(pace.Add(890, 2), 0u) << "kMany + 2 in this one";
  EXPECT_EQ(pace.Add(910, kMany), 0u) << "not yet more than kMany";
  EXPECT_EQ(pace.Add(930, 1), kMany + 2);
  EXPECT_EQ(pace.Add(940, 2 * kMany), 0u) << "counted anew";
  EXPECT_EQ(pace.Add(1000, 2 * kMany), 0u);
  EXPECT_EQ(pace.Add(1100, 2 * kMany), 2 * kMany);
}

TEST(MovePaceTest, AQuietIterationEndsARow) {
  MovePace pace(kRequests);
  for (std::uint64_t request = 0; request < 40 * kRequests; request += 3 * kRequests) {
    EXPECT_EQ(pace.Add(request, 2 * kMany), 0u);
    EXPECT_EQ(pace.Add(request + kRequests, 2 * kMany), 0u);
  }
  MovePace other(kRequests);
  for (std::uint64_t iteration = 0; iteration < 40; ++iteration) {
    EXPECT_EQ(other.Add(iteration * kRequests, iteration % 3 == 2 ? kMany : kMany + 1), 0u) << "kMany are not many";
  }
}

TEST(MovePaceTest, APlanWithoutACycleHasIterationsOfARequest) {
  MovePace pace(0);
  EXPECT_EQ(pace.Add(7, kMany + 1), 0u);
  EXPECT_EQ(pace.Add(8, kMany + 1), 0u);
  EXPECT_EQ(pace.Add(9, kMany + 1), kMany + 1);
}

}  // namespace
}  // namespace stalloc
