// PoolPlaces: where the bytes of a graphs' pool lie in the arena while it is lent: in pieces of
// PoolLayout::kExtentUnit.
//
//   pool    |  a  | k |  b  |  c  | k |  d  |      k: kept bytes
//   arena   |  a  |  b  |  c  |  d  | k | k |      pieces that can be lent as a whole lie next to each other,
//                                                  so that large blocks find space; for slots of a plan the plan says
//                                                  which come first
//
// Immutable. Bytes; ranges in granules of the arena.
#pragma once

#include <span>
#include <vector>

#include "allocator/engine/bytes/plan_reading.h"
#include "allocator/engine/place/lent_region.h"
#include "allocator/graphs/pool_catalog.h"
#include "proto/model/pool_layout.h"

namespace stalloc {

using GranuleRanges = std::vector<GranuleRange>;

// Ascending, merged where they touch.
[[nodiscard]] GranuleRanges MergedGranules(GranuleRanges ranges);
// What of the range lies in none of `others`, or in these; they are ascending and disjoint.
void AppendOutside(GranuleRange range, const GranuleRanges& others, GranuleRanges* outside);
void AppendCommon(GranuleRange range, const GranuleRanges& others, GranuleRanges* common);

// Numbers of pieces that lie in `lendable` alone, which are addresses.
[[nodiscard]] std::vector<std::uint32_t> PiecesIn(const PoolLayout& layout, std::span<const ByteRange> lendable);

class PoolPlaces {
 public:
  struct Piece {
    std::uint64_t address = 0;  // in the pool
    Offset offset = 0;          // in the arena
  };
  // From the arena's offset `begin` on. `first`: numbers of pieces that lie before all others.
  PoolPlaces(const PoolLayout& layout, Offset begin, std::span<const std::uint32_t> first);

  [[nodiscard]] std::span<const Piece> pieces() const { return pieces_; }
  // Adds where the range lies, in parts; what is in no piece is left out.
  void Append(const ByteRange& range, GranuleRanges* places) const;

 private:
  std::vector<Piece> pieces_;  // ascending by offset
  std::vector<Piece> by_address_;
};

// What launches of a graph need of what is `open`. What it gives is kept apart by who takes it.
[[nodiscard]] GraphRanges RangesOf(const GraphUse& use, const PoolPlaces& places, const GranuleRanges& open);

}  // namespace stalloc
