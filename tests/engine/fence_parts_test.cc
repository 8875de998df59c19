// What is noted of foreign uses and of events: ForeignUses, FenceEvents.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "allocator/engine/freed_blocks.h"
#include "allocator/engine/stream_clocks.h"

namespace stalloc {
namespace fence_parts_test {

std::vector<StreamIndex> Streams(const ForeignUses& uses, ForeignUses::List list) {
  std::vector<StreamIndex> streams;
  uses.All(list, [&](StreamIndex stream) {
    streams.push_back(stream);
    return true;
  });
  return streams;
}

TEST(ForeignUsesTest, KeepsListsApartAndReusesCells) {
  ForeignUses uses(3);
  ForeignUses::List first = 0;
  ForeignUses::List second = 0;
  EXPECT_TRUE(uses.Add(first, 10));
  EXPECT_TRUE(uses.Add(first, 11));
  EXPECT_TRUE(uses.Add(first, 10));  // known already
  EXPECT_TRUE(uses.Add(second, 10));
  EXPECT_FALSE(uses.Add(second, 12));  // full
  EXPECT_EQ(Streams(uses, second), (std::vector<StreamIndex>{10}));
  uses.RemoveIf(first, [](StreamIndex stream) { return stream == 10; });
  EXPECT_EQ(Streams(uses, first), (std::vector<StreamIndex>{11}));
  EXPECT_TRUE(uses.Add(second, 12));
  uses.RemoveIf(first, [](StreamIndex) { return true; });
  EXPECT_EQ(first, 0u);
}

TEST(ForeignUsesTest, ACopyThatDoesNotFitLeavesNothingBehind) {
  ForeignUses uses(5);
  ForeignUses::List list = 0;
  for (const StreamIndex stream : {1, 2, 3}) ASSERT_TRUE(uses.Add(list, stream));
  ForeignUses::List copy = 0;
  EXPECT_FALSE(uses.Copy(list, copy));
  EXPECT_EQ(copy, 0u);
  uses.RemoveIf(list, [](StreamIndex stream) { return stream == 2; });
  EXPECT_TRUE(uses.Copy(list, copy));
  EXPECT_EQ(Streams(uses, copy).size(), 2u);
}

TEST(FenceEventsTest, FindsTheFirstThatIsLateEnough) {
  FenceEvents events;
  EXPECT_EQ(events.FirstFrom(0), nullptr);
  for (const std::uint64_t stamp : {3, 7, 5}) EXPECT_EQ(events.Add(stamp, 100 + stamp), 0u);
  EXPECT_EQ(events.FirstFrom(1)->event, 103u);
  EXPECT_EQ(events.FirstFrom(4)->event, 105u) << "added last, but drawn before 7";
  EXPECT_EQ(events.FirstFrom(7)->event, 107u);
  EXPECT_EQ(events.FirstFrom(8), nullptr);
}

TEST(FenceEventsTest, TheOldestGoesUnlessItIsPinned) {
  FenceEvents events;
  for (std::uint64_t stamp = 1; stamp <= FenceEvents::kMost; ++stamp) EXPECT_EQ(events.Add(stamp, stamp), 0u);
  EXPECT_EQ(events.Add(1000, 1000), 1u);
  ++events.At(0).pins;
  EXPECT_EQ(events.Add(1001, 1001), 1001u) << "the new one, since the oldest is in use";
  --events.Find(2).pins;
  EXPECT_EQ(events.Add(1002, 1002), 2u);
  EXPECT_EQ(events.FirstFrom(1)->event, 3u);
}

}  // namespace fence_parts_test
}  // namespace stalloc
