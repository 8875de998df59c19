#include "allocator/engine/bytes/occupancy.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <vector>

namespace stalloc {
namespace occupancy_test {

LiveRecord Block(std::uint32_t granule, std::uint32_t granules) {
  LiveRecord record;
  record.granule = granule;
  record.granules = granules;
  return record;
}

// What an occupancy is, written down without thought of speed.
struct NaiveOccupancy {
  std::vector<LiveRecord> blocks;

  [[nodiscard]] const LiveRecord* LastIn(std::uint32_t lo, std::uint32_t hi) const {
    const LiveRecord* last = nullptr;
    for (const LiveRecord& block : blocks) {
      const bool overlaps = block.granule < hi && block.end() > lo;
      if (overlaps && (last == nullptr || block.granule > last->granule)) last = &block;
    }
    return last;
  }
};

TEST(OccupancyTest, AgreesWithANaiveListOverRandomOperations) {
  constexpr std::uint32_t kArena = 20'000;
  constexpr std::uint64_t kSeed = 7;
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  std::mt19937_64 random(kSeed);
  Occupancy occupancy(kArena, 64);  // fewer than will live: the table must grow
  NaiveOccupancy naive;
  for (int step = 0; step < 100'000; ++step) {
    const auto length = static_cast<std::uint32_t>(random() % (step % 3 == 0 ? 400 : 8) + 1);
    const auto lo = static_cast<std::uint32_t>(random() % (kArena - length));
    const LiveRecord* found = occupancy.LastIn(lo, lo + length);
    const LiveRecord* expected = naive.LastIn(lo, lo + length);
    ASSERT_EQ(found == nullptr, expected == nullptr) << "step " << step;
    if (found == nullptr && naive.blocks.size() < 200) {
      occupancy.Insert(Block(lo, length));
      naive.blocks.push_back(Block(lo, length));
    } else if (found != nullptr) {
      ASSERT_EQ(found->granule, expected->granule) << "step " << step;
      ASSERT_EQ(found->granules, expected->granules) << "step " << step;
    }
    if (!naive.blocks.empty() && random() % 2 == 0) {
      const std::size_t victim = random() % naive.blocks.size();
      occupancy.Erase(*occupancy.Find(naive.blocks[victim].granule));
      naive.blocks[victim] = naive.blocks.back();
      naive.blocks.pop_back();
    }
    if (step % 5000 == 0) {
      ASSERT_EQ(occupancy.CheckInvariants(), "") << "step " << step;
    }
  }
  std::size_t blocks = 0;
  occupancy.ForEachDownwards([&](const LiveRecord&) { ++blocks; });
  EXPECT_EQ(blocks, naive.blocks.size());
  EXPECT_EQ(occupancy.CheckInvariants(), "");
}

TEST(OccupancyTest, BlocksThatTouchDoNotOverlap) {
  Occupancy occupancy(100, 10);
  occupancy.Insert(Block(10, 5));
  EXPECT_EQ(occupancy.LastIn(15, 20), nullptr);
  EXPECT_EQ(occupancy.LastIn(5, 10), nullptr);
  ASSERT_NE(occupancy.LastIn(14, 20), nullptr);
  ASSERT_NE(occupancy.LastIn(5, 11), nullptr);
  ASSERT_NE(occupancy.LastIn(0, 100), nullptr);
  EXPECT_EQ(occupancy.LastIn(12, 13)->granule, 10u);  // wholly inside
}

TEST(OccupancyTest, ALongBlockIsFoundFarFromItsStart) {
  Occupancy occupancy(1'000'000, 10);
  occupancy.Insert(Block(3, 900'000));
  ASSERT_NE(occupancy.LastIn(900'002, 900'003), nullptr);
  EXPECT_EQ(occupancy.LastIn(900'003, 900'004), nullptr);
}

TEST(OccupancyTest, TheInvariantWalkSeesAnOverlap) {
  Occupancy occupancy(100, 10);
  occupancy.Insert(Block(10, 5));
  occupancy.Insert(Block(14, 5));  // breaks the precondition on purpose
  EXPECT_NE(occupancy.CheckInvariants().find("overlap"), std::string::npos);
}

TEST(OccupancyTest, TheInvariantWalkSeesABlockThatLeavesTheArena) {
  Occupancy occupancy(100, 10);
  occupancy.Insert(Block(99, 2));
  EXPECT_NE(occupancy.CheckInvariants().find("leaves the arena"), std::string::npos);
}

TEST(OccupancyTest, VisitsBlocksFromTheTop) {
  Occupancy occupancy(1000, 10);
  for (const std::uint32_t granule : {500u, 3u, 999u, 64u}) occupancy.Insert(Block(granule, 1));
  std::vector<std::uint32_t> seen;
  occupancy.ForEachDownwards([&](const LiveRecord& record) { seen.push_back(record.granule); });
  EXPECT_EQ(seen, (std::vector<std::uint32_t>{999, 500, 64, 3}));
}

TEST(LiveRecordTest, KnowsWhatWasAskedFor) {
  LiveRecord record = Block(1, 3);
  record.slack = 500;
  EXPECT_EQ(record.bytes(), 3u * 512);
  EXPECT_EQ(record.requested(), 3u * 512 - 500);
}

}  // namespace occupancy_test
}  // namespace stalloc
