#include "allocator/sleep/saved_bytes.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

namespace stalloc {

Ranges Joined(Ranges ranges) {
  std::sort(ranges.begin(), ranges.end(), [](const auto& a, const auto& b) { return a.offset < b.offset; });
  Ranges joined;
  for (const Arena::Range& range : ranges) {
    if (!joined.empty() && EndOf(joined.back()) == range.offset) {
      joined.back().bytes += range.bytes;
    } else {
      joined.push_back(range);
    }
  }
  return joined;
}

Ranges Common(std::span<const Arena::Range> a, std::span<const Arena::Range> b) {
  Ranges common;
  for (auto left = a.begin(), right = b.begin(); left != a.end() && right != b.end();) {
    const Offset begin = std::max(left->offset, right->offset);
    const Offset end = std::min(EndOf(*left), EndOf(*right));
    if (begin < end) common.push_back({begin, end - begin});
    if (EndOf(*left) < EndOf(*right)) {
      ++left;
    } else {
      ++right;
    }
  }
  return common;
}

Ranges Without(std::span<const Arena::Range> ranges, std::span<const Arena::Range> others) {
  Ranges rest;
  auto other = others.begin();
  for (const Arena::Range& range : ranges) {
    Offset at = range.offset;
    while (other != others.end() && EndOf(*other) <= at) ++other;
    for (auto inside = other; inside != others.end() && inside->offset < EndOf(range); ++inside) {
      if (inside->offset > at) rest.push_back({at, inside->offset - at});
      at = std::max(at, EndOf(*inside));
    }
    if (at < EndOf(range)) rest.push_back({at, EndOf(range) - at});
  }
  return rest;
}

Bytes SumOf(std::span<const Arena::Range> ranges) noexcept {
  return std::accumulate(ranges.begin(), ranges.end(), Bytes{0},
                         [](Bytes sum, const Arena::Range& range) { return sum + range.bytes; });
}

void SavedBytes::Add(std::span<const Arena::Range> ranges, std::span<const HostPool::Piece> pieces) {
  auto piece = pieces.begin();
  Bytes used = 0;  // of that piece
  for (Arena::Range rest : ranges) {
    while (rest.bytes > 0) {
      const Bytes bytes = std::min(rest.bytes, piece->bytes - used);
      places_[rest.offset] = {bytes, piece->at + used};
      bytes_ += bytes;
      rest = {rest.offset + bytes, rest.bytes - bytes};
      used += bytes;
      if (used < piece->bytes) continue;
      ++piece;
      used = 0;
    }
  }
}

std::vector<SavedBytes::Part> SavedBytes::In(std::span<const Arena::Range> ranges) const {
  std::vector<Part> parts;
  for (const Arena::Range& range : ranges) {
    auto place = places_.upper_bound(range.offset);
    if (place != places_.begin()) --place;
    for (; place != places_.end() && place->first < EndOf(range); ++place) {
      const Offset begin = std::max(place->first, range.offset);
      const Offset end = std::min(place->first + place->second.bytes, EndOf(range));
      if (begin < end) parts.push_back({{begin, end - begin}, place->second.at + (begin - place->first)});
    }
  }
  return parts;
}

void SavedBytes::Cut(const Part& part) {
  const auto place = std::prev(places_.upper_bound(part.range.offset));
  const auto [offset, whole] = *place;
  places_.erase(place);
  const Bytes before = part.range.offset - offset;
  const Offset end = EndOf(part.range);
  if (before > 0) places_[offset] = {before, whole.at};
  if (end < offset + whole.bytes) places_[end] = {offset + whole.bytes - end, whole.at + (end - offset)};
  bytes_ -= part.range.bytes;
}

void SavedBytes::Drop(std::span<const Arena::Range> ranges, HostPool& pool) {
  for (const Part& part : In(ranges)) {
    Cut(part);
    pool.Give({part.at, part.range.bytes});
  }
}

void SavedBytes::KeepOnly(std::span<const Arena::Range> ranges, HostPool& pool) {
  constexpr Arena::Range kAll{0, ~Bytes{0}};
  Drop(Without({&kAll, 1}, ranges), pool);
}

}  // namespace stalloc
