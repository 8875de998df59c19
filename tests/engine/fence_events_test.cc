#include "allocator/driver/fence_events.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace stalloc {
namespace fence_events_test {

constexpr std::uint32_t kMost = 256;

TEST(FenceEventsTest, FindsTheFirstThatIsLateEnough) {
  FenceEvents<kMost> events;
  EXPECT_EQ(events.FirstFrom(0), nullptr);
  for (const std::uint64_t stamp : {3, 7, 5}) EXPECT_EQ(events.Add(stamp, 100 + stamp), 0u);
  EXPECT_EQ(events.FirstFrom(1)->event, 103u);
  EXPECT_EQ(events.FirstFrom(4)->event, 105u) << "added last, but drawn before 7";
  EXPECT_EQ(events.FirstFrom(7)->event, 107u);
  EXPECT_EQ(events.FirstFrom(8), nullptr);
}

TEST(FenceEventsTest, TheOldestGoesUnlessItIsPinned) {
  FenceEvents<kMost> events;
  for (std::uint64_t stamp = 1; stamp <= kMost; ++stamp) EXPECT_EQ(events.Add(stamp, stamp), 0u);
  EXPECT_EQ(events.Add(1000, 1000), 1u);
  ++events.At(0).pins;
  EXPECT_EQ(events.Add(1001, 1001), 1001u) << "the new one, since the oldest is in use";
  --events.Find(2).pins;
  EXPECT_EQ(events.Add(1002, 1002), 2u);
  EXPECT_EQ(events.FirstFrom(1)->event, 3u);
}

}  // namespace fence_events_test
}  // namespace stalloc
