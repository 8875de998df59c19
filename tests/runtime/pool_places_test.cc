#include "allocator/runtime/pool_places.h"

#include <gtest/gtest.h>

#include <vector>

namespace stalloc {
namespace {

constexpr Bytes kUnit = PoolLayout::kExtentUnit;
constexpr std::uint64_t kPool = 0x7000'0000'0000;
constexpr Offset kBegin = Bytes{4} << 30;

// Four pieces of one segment.
PoolLayout FourPieces() {
  const std::vector<PoolBlock> requests = {{kPool, 4 * kUnit}};
  return PoolLayout(requests);
}

GranuleRange InArena(Offset begin, Offset end) { return {WholeGranules(kBegin + begin), WholeGranules(kBegin + end)}; }

TEST(PoolPlacesTest, WithoutAChoiceTheOrderIsTheLayouts) {
  const PoolPlaces places(FourPieces(), kBegin, {});
  GranuleRanges all;
  places.Append({kPool + 512, kPool + 4 * kUnit}, &all);
  EXPECT_EQ(MergedGranules(all), (GranuleRanges{InArena(512, 4 * kUnit)}));
}

// The second piece has kept bytes.
TEST(PoolPlacesTest, PiecesThatAreLentAsAWholeComeFirst) {
  const std::vector<ByteRange> lendable = {{kPool, kPool + kUnit + 512}, {kPool + 2 * kUnit, kPool + 4 * kUnit}};
  EXPECT_EQ(PiecesIn(FourPieces(), lendable), (std::vector<std::uint32_t>{0, 2, 3}));
  const PoolPlaces places(FourPieces(), kBegin, PiecesIn(FourPieces(), lendable));
  GranuleRanges lent;
  for (const ByteRange& range : lendable) places.Append(range, &lent);
  EXPECT_EQ(MergedGranules(lent), (GranuleRanges{InArena(0, 3 * kUnit + 512)}));
  ASSERT_EQ(places.pieces().size(), 4u);
  EXPECT_EQ(places.pieces()[3].address, kPool + kUnit);
}

TEST(PoolPlacesTest, WhatIsInNoPieceIsLeftOut) {
  const PoolPlaces places(FourPieces(), kBegin, {});
  GranuleRanges parts;
  places.Append({kPool - 1024, kPool + 512}, &parts);
  places.Append({kPool + 4 * kUnit, kPool + 5 * kUnit}, &parts);
  EXPECT_EQ(parts, (GranuleRanges{InArena(0, 512)}));
}

// B takes what A gives, in the place of a dead block of its own; only what is open counts.
TEST(PoolPlacesTest, ALaunchNeedsWhatIsOpenOnce) {
  const PoolPlaces places(FourPieces(), kBegin, {});
  const GranuleRanges open = {InArena(0, 2 * kUnit)};
  const GraphUse a{
      .dead = {{kPool, kPool + kUnit}}, .gives = {{{kPool + kUnit, kPool + 3 * kUnit}, 1, 2}}, .takes = {}};
  const GraphRanges of_a = RangesOf(a, places, open);
  EXPECT_EQ(of_a.own, (GranuleRanges{InArena(0, kUnit)}));
  EXPECT_EQ(of_a.gives, (GranuleRanges{InArena(kUnit, 2 * kUnit)}));
  const GraphUse b{.dead = {{kPool + kUnit, kPool + 2 * kUnit}}, .gives = {}, .takes = a.gives};
  const GraphRanges of_b = RangesOf(b, places, open);
  EXPECT_EQ(of_b.own, (GranuleRanges{InArena(kUnit, 2 * kUnit)}));
  EXPECT_EQ(of_b.takes, (std::vector<TakenRange>{{InArena(kUnit, 2 * kUnit), 1}}));
}

}  // namespace
}  // namespace stalloc
