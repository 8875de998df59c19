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

std::vector<std::uint32_t> PiecesIn(const PoolLayout& layout, std::span<const ByteRange> lendable) {
  std::vector<std::uint32_t> inside;
  std::uint32_t number = 0;
  for (const PoolLayout::Extent& extent : layout.extents()) {
    for (std::uint64_t begin = extent.address; begin < extent.address + extent.bytes; ++number) {
      const std::uint64_t end = begin + PoolLayout::kExtentUnit;
      const auto has_it = [&](const ByteRange& range) { return range.begin <= begin && end <= range.end; };
      if (std::ranges::any_of(lendable, has_it)) inside.push_back(number);
      begin = end;
    }
  }
  return inside;
}

PoolPlaces::PoolPlaces(const PoolLayout& layout, Offset begin, std::span<const std::uint32_t> first) {
  for (const PoolLayout::Extent& extent : layout.extents()) {
    for (Bytes at = 0; at < extent.bytes; at += PoolLayout::kExtentUnit) {
      pieces_.push_back({extent.address + at, begin});
    }
  }
  const std::vector<Offset> offsets = PieceOffsets(pieces_.size(), first);
  for (std::size_t i = 0; i < pieces_.size(); ++i) pieces_[i].offset += offsets[i];
  by_address_ = pieces_;
  std::ranges::sort(by_address_, {}, &Piece::address);
  std::ranges::sort(pieces_, {}, &Piece::offset);
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
