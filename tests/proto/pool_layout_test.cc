#include "proto/model/pool_layout.h"

#include <gtest/gtest.h>

#include <vector>

namespace stalloc {
namespace {

constexpr std::uint64_t kLarge = 0x7000'0000'0000;  // where a segment begins
constexpr std::uint64_t kSmall = kLarge + (Bytes{200} << 30);

std::vector<PoolBlock> Requests(std::uint64_t large, std::uint64_t small) {
  return {{large, 30 * kMiB}, {small, kMiB / 2}, {large + 30 * kMiB, 4 * kMiB}, {large, 8 * kMiB}};
}

TEST(PoolLayoutTest, SegmentsLieBehindEachOther) {
  const PoolLayout layout(Requests(kLarge, kSmall));
  ASSERT_EQ(layout.extents().size(), 2u);
  EXPECT_EQ(layout.extents()[0].address, kLarge);
  EXPECT_EQ(layout.extents()[0].bytes, 40 * kMiB);
  EXPECT_EQ(layout.extents()[1].offset, 40 * kMiB);
  EXPECT_EQ(layout.bytes(), 60 * kMiB);
  EXPECT_EQ(layout.OffsetOf(kLarge + 30 * kMiB), 30 * kMiB);
  EXPECT_EQ(layout.OffsetOf(kSmall + 512), 40 * kMiB + 512);
  EXPECT_EQ(layout.OffsetOf(kLarge - 1), std::nullopt);
}

TEST(PoolLayoutTest, AnotherStartHasTheSameLayout) {
  const PoolLayout first(Requests(kLarge, kSmall));
  const PoolLayout second(Requests(kSmall, kLarge));  // the other way round in memory
  EXPECT_EQ(first.hash(), second.hash());
  EXPECT_EQ(first.bytes(), second.bytes());
  EXPECT_EQ(second.extents()[0].address, kSmall);
}

TEST(PoolLayoutTest, OtherSizesOffsetsOrCountsAreAnotherLayout) {
  const PoolLayout layout(Requests(kLarge, kSmall));
  std::vector<PoolBlock> other = Requests(kLarge, kSmall);
  other[3].bytes += 512;
  EXPECT_NE(PoolLayout(other).hash(), layout.hash());
  other = Requests(kLarge, kSmall);
  other[3].address += 512;
  EXPECT_NE(PoolLayout(other).hash(), layout.hash());
  other = Requests(kLarge, kSmall);
  other.pop_back();
  EXPECT_NE(PoolLayout(other).hash(), layout.hash());
}

TEST(PoolLayoutTest, PiecesThatComeFirstLieBeforeTheOthers) {
  constexpr Bytes kPiece = PoolLayout::kExtentUnit;
  EXPECT_EQ(PieceOffsets(4, std::vector<std::uint32_t>{3, 1}),
            (std::vector<Offset>{2 * kPiece, kPiece, 3 * kPiece, 0}));
  EXPECT_EQ(PieceOffsets(2, {}), (std::vector<Offset>{0, kPiece}));
}

TEST(PoolLayoutTest, WithoutAddressesThereIsNone) {
  std::vector<PoolBlock> requests = Requests(kLarge, kSmall);
  requests[2].address = 0;
  EXPECT_TRUE(PoolLayout(requests).empty());
  EXPECT_TRUE(PoolLayout(std::vector<PoolBlock>()).empty());
}

}  // namespace
}  // namespace stalloc
