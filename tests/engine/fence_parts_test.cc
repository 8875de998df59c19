// What is noted of foreign uses and of events: ForeignUses, FenceEvents.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "allocator/engine/freed_blocks.h"
#include "allocator/engine/stream_clocks.h"

namespace stalloc {
namespace fence_parts_test {

std::vector<StreamIndex> Streams(const ForeignUses& uses, ForeignUses::Set set) {
  std::vector<StreamIndex> streams;
  uses.All(set, [&](StreamIndex stream) {
    streams.push_back(stream);
    return true;
  });
  return streams;
}

TEST(ForeignUsesTest, KeepsSetsApartAndReusesThem) {
  ForeignUses uses(2);
  ForeignUses::Set first = 0;
  ForeignUses::Set second = 0;
  ForeignUses::Set third = 0;
  for (const StreamIndex stream : {10, 127, 10, 64}) EXPECT_TRUE(uses.Add(first, stream));
  EXPECT_TRUE(uses.Add(second, 11));
  EXPECT_FALSE(uses.Add(third, 12)) << "full";
  EXPECT_EQ(third, 0u);
  EXPECT_EQ(Streams(uses, first), (std::vector<StreamIndex>{10, 64, 127}));
  uses.RemoveIf(first, [](StreamIndex stream) { return stream == 64; });
  EXPECT_EQ(Streams(uses, first), (std::vector<StreamIndex>{10, 127}));
  uses.RemoveIf(first, [](StreamIndex) { return true; });
  EXPECT_EQ(first, 0u);
  EXPECT_TRUE(uses.Add(third, 12));
  EXPECT_EQ(Streams(uses, third), (std::vector<StreamIndex>{12})) << "nothing of whose it was";
  EXPECT_EQ(Streams(uses, second), (std::vector<StreamIndex>{11}));
}

TEST(ForeignUsesTest, ACopyIsItsOwn) {
  ForeignUses uses(2);
  ForeignUses::Set set = 0;
  for (const StreamIndex stream : {1, 2, 3}) ASSERT_TRUE(uses.Add(set, stream));
  ForeignUses::Set copy = 0;
  ASSERT_TRUE(uses.Copy(set, copy));
  uses.RemoveIf(set, [](StreamIndex stream) { return stream == 2; });
  EXPECT_EQ(Streams(uses, copy), (std::vector<StreamIndex>{1, 2, 3}));
  ForeignUses::Set another = 7;
  EXPECT_FALSE(uses.Copy(set, another)) << "full";
  EXPECT_EQ(another, 0u);
  EXPECT_TRUE(uses.Copy(0, another)) << "an empty one takes nothing";
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
