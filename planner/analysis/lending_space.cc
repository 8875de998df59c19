#include "planner/analysis/lending_space.h"

#include <algorithm>
#include <utility>

#include "proto/model/plan.h"
#include "proto/model/pool_layout.h"

namespace stalloc::planner {
namespace {

constexpr Bytes kUnit = PoolLayout::kExtentUnit;

// Those that overlap it.
ByteRanges Around(const ByteRanges& ranges, const ByteRange& range) {
  const auto first = std::ranges::upper_bound(ranges, range.begin, {}, &ByteRange::end);
  return {first, std::ranges::lower_bound(first, ranges.end(), range.end, {}, &ByteRange::begin)};
}

}  // namespace

LendingSpace::LendingSpace(const PoolSchedule& schedule) : schedule_(schedule) {
  Offset begin = 0;
  for (const LentPool& pool : schedule.pools) {
    Strip& strip = strips_.emplace_back();
    strip.begin = begin;
    strip.bytes = pool.bytes;
    strip.lendable = strip.Inside(schedule.lendable);
    begin += pool.bytes;
    NoteLargest(strip);
  }
}

void LendingSpace::NoteLargest(const Strip& strip) {
  for (const ByteRange& range : strip.UsableBut({})) largest_ = std::max(largest_, range.end - range.begin);
}

// What a launch needs in the block's life, of all layouts.
ByteRanges LendingSpace::NeededIn(const Wanted& wanted) const {
  const Lifetime life{wanted.life.begin, wanted.reach};
  std::vector<bool> marked(schedule_.needed.size());
  std::vector<ByteRange> ranges;
  for (const PoolSchedule::Need& need : schedule_.needs) {
    if (need.life.begin >= wanted.life.end) break;
    if (marked[need.bytes] || !need.life.Overlaps(life)) continue;
    marked[need.bytes] = true;
    const ByteRanges& needed = schedule_.needed[need.bytes];
    ranges.insert(ranges.end(), needed.begin(), needed.end());
  }
  return Merged(std::move(ranges));
}

// In its own offsets.
ByteRanges LendingSpace::Strip::Inside(const ByteRanges& ranges) const {
  ByteRanges inside;
  for (const ByteRange& range : ranges) {
    const Offset first = std::max(range.begin, begin);
    const Offset last = std::min(range.end, begin + bytes);
    if (first < last) inside.push_back({first - begin, last - begin});
  }
  return inside;
}

ByteRanges LendingSpace::Strip::OccupiedIn(const Lifetime& life) const {
  std::vector<ByteRange> ranges;
  for (const Taken& each : taken) {
    if (each.life.Overlaps(life)) ranges.push_back(each.bytes);
  }
  return Merged(std::move(ranges));
}

// Whether blocks have it or not.
ByteRanges LendingSpace::Strip::UsableBut(const ByteRanges& needed) const {
  std::vector<ByteRange> usable = Without(lendable, Inside(needed));
  usable.insert(usable.end(), own.begin(), own.end());
  return Merged(std::move(usable));
}

std::optional<LendingSpace::Place> LendingSpace::Find(const Wanted& wanted) const {
  if (wanted.bytes > largest_) return std::nullopt;
  const ByteRanges needed = NeededIn(wanted);
  for (std::size_t pool = 0; pool < strips_.size(); ++pool) {
    const Strip& strip = strips_[pool];
    for (const ByteRange& free : Without(strip.UsableBut(needed), strip.OccupiedIn(wanted.life))) {
      const Offset begin = RoundUp(free.begin, kBlockAlignment);
      if (begin + wanted.bytes <= free.end) return Place{pool, begin, {}};
    }
  }
  return std::nullopt;
}

// Whole units around what is lacking.
ByteRanges LendingSpace::Strip::OwnFor(const ByteRanges& lacking) const {
  std::vector<ByteRange> units;
  for (const ByteRange& range : lacking) {
    if (range.begin < bytes) {
      units.push_back({range.begin / kUnit * kUnit, std::min(bytes, RoundUp(range.end, kUnit))});
    }
    if (range.end > bytes) units.push_back({std::max(range.begin, bytes), RoundUp(range.end, LentPool::kOwnUnit)});
  }
  return Merged(std::move(units));
}

// Between two of them no offset needs less own memory than both: the block begins or ends there where what is usable,
// what is occupied, or a unit does.
std::vector<Offset> LendingSpace::Strip::Tries(Bytes wanted, const ByteRanges& usable,
                                               const ByteRanges& occupied) const {
  std::vector<Offset> edges;
  for (const ByteRanges* const ranges : {&usable, &occupied}) {
    for (const ByteRange& range : *ranges) edges.insert(edges.end(), {range.begin, range.end});
  }
  for (Offset unit = 0; unit <= bytes; unit += kUnit) edges.push_back(unit);
  std::vector<Offset> tries;
  for (const Offset edge : edges) {
    tries.push_back(RoundUp(edge, kBlockAlignment));
    if (edge >= wanted) tries.push_back((edge - wanted) / kBlockAlignment * kBlockAlignment);
  }
  std::ranges::sort(tries);
  tries.erase(std::unique(tries.begin(), tries.end()), tries.end());
  return tries;
}

std::optional<LendingSpace::Place> LendingSpace::FindWithOwn(const Wanted& wanted) const {
  const ByteRanges needed = NeededIn(wanted);
  std::optional<Place> best;
  for (std::size_t pool = 0; pool < strips_.size(); ++pool) {
    const Strip& strip = strips_[pool];
    const ByteRanges usable = strip.UsableBut(needed);
    const ByteRanges occupied = strip.OccupiedIn(wanted.life);
    for (const Offset offset : strip.Tries(wanted.bytes, usable, occupied)) {
      const ByteRange bytes{offset, offset + wanted.bytes};
      if (!Around(occupied, bytes).empty()) continue;
      Place place{pool, offset, strip.OwnFor(Without({bytes}, Around(usable, bytes)))};
      if (!best.has_value() || place.own_bytes() < best->own_bytes()) best = std::move(place);
    }
  }
  return best;
}

void LendingSpace::Take(const Wanted& wanted, const Place& place) {
  Strip& strip = strips_[place.pool];
  strip.taken.push_back({wanted.life, {place.offset, place.offset + wanted.bytes}});
  std::vector<ByteRange> own = strip.own;
  own.insert(own.end(), place.own.begin(), place.own.end());
  strip.own = Merged(std::move(own));
  NoteLargest(strip);
}

}  // namespace stalloc::planner
