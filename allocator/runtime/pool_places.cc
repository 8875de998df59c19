#include "allocator/runtime/pool_places.h"

#include <algorithm>
#include <utility>

namespace stalloc {

GranuleRanges MergedGranules(GranuleRanges ranges) {
  std::ranges::sort(ranges, {}, &GranuleRange::lo);
  GranuleRanges merged;
  for (const GranuleRange& range : ranges) {
    if (!merged.empty() && range.lo <= merged.back().hi) {
      merged.back().hi = std::max(merged.back().hi, range.hi);
    } else {
      merged.push_back(range);
    }
  }
  return merged;
}

void AppendOutside(GranuleRange range, const GranuleRanges& others, GranuleRanges* outside) {
  for (const GranuleRange& other : others) {
    if (other.hi <= range.lo) continue;
    if (other.lo >= range.hi) break;
    if (other.lo > range.lo) outside->push_back({range.lo, other.lo});
    range.lo = std::min(other.hi, range.hi);
  }
  if (range.lo < range.hi) outside->push_back(range);
}

void AppendCommon(GranuleRange range, const GranuleRanges& others, GranuleRanges* common) {
  for (const GranuleRange& other : others) {
    const GranuleRange both{std::max(range.lo, other.lo), std::min(range.hi, other.hi)};
    if (both.lo < both.hi) common->push_back(both);
  }
}

PoolPlaces::PoolPlaces(const PoolLayout& layout, Offset begin, std::span<const ByteRange> first) {
  for (const PoolLayout::Extent& extent : layout.extents()) {
    for (Bytes at = 0; at < extent.bytes; at += PoolLayout::kExtentUnit) pieces_.push_back({extent.address + at, 0});
  }
  std::ranges::stable_partition(pieces_, [&](const Piece& piece) {
    return std::ranges::any_of(first, [&](const ByteRange& range) {
      return range.begin <= piece.address && piece.address + PoolLayout::kExtentUnit <= range.end;
    });
  });
  for (Piece& piece : pieces_) {
    piece.offset = begin;
    begin += PoolLayout::kExtentUnit;
  }
  by_address_ = pieces_;
  std::ranges::sort(by_address_, {}, &Piece::address);
}

void PoolPlaces::Append(const ByteRange& range, GranuleRanges* places) const {
  auto piece = std::ranges::upper_bound(by_address_, range.begin, {}, &Piece::address);
  if (piece != by_address_.begin()) --piece;
  for (; piece != by_address_.end() && piece->address < range.end; ++piece) {
    const std::uint64_t begin = std::max(range.begin, piece->address);
    const std::uint64_t end = std::min(range.end, piece->address + PoolLayout::kExtentUnit);
    if (begin >= end) continue;
    const Offset offset = piece->offset + (begin - piece->address);
    places->push_back({WholeGranules(offset), WholeGranules(offset + (end - begin))});
  }
}

GraphRanges RangesOf(const GraphUse& use, const PoolPlaces& places, const GranuleRanges& open) {
  const auto append_open = [&](const ByteRange& range, GranuleRanges* common) {
    GranuleRanges parts;
    places.Append(range, &parts);
    for (const GranuleRange& part : parts) AppendCommon(part, open, common);
  };
  GraphRanges ranges;
  GranuleRanges given;  // so far, ascending
  for (const GraphUse::Carried& carried : use.gives) {
    GranuleRanges parts;
    append_open(carried.range, &parts);
    for (const GranuleRange& part : parts) AppendOutside(part, given, &ranges.gives);
    given = MergedGranules(ranges.gives);
  }
  GranuleRanges own;
  for (const ByteRange& dead : use.dead) append_open(dead, &own);
  for (const GraphUse::Carried& carried : use.takes) {
    GranuleRanges parts;
    append_open(carried.range, &parts);
    for (const GranuleRange& part : parts) ranges.takes.push_back({part, carried.from});
    own.insert(own.end(), parts.begin(), parts.end());
  }
  for (const GranuleRange& part : MergedGranules(std::move(own))) AppendOutside(part, given, &ranges.own);
  return ranges;
}

}  // namespace stalloc
