#include "planner/packing/window_choice.h"

#include <algorithm>
#include <limits>

#include "planner/packing/interval_list.h"

namespace stalloc::planner {
namespace {

using Interval = IntervalList::Interval;

constexpr std::uint32_t kLeastTaken = 20;
constexpr std::uint32_t kMostTaken = 200;
constexpr std::uint32_t kMarginBits = 14;  // of positions before and after the homeless block's life

// What is free below the ceiling throughout the block's life, lowest first.
std::vector<Interval> GapsDuring(const Instance& instance, std::span<const Offset> offsets,
                                 std::span<const BlockIndex> by_offset, const Item& item, Bytes ceiling) {
  std::vector<Interval> gaps;
  Offset free_from = 0;
  for (const BlockIndex other : by_offset) {
    if (!instance[other].Conflicts(item)) continue;
    if (offsets[other] > free_from) gaps.push_back({free_from, offsets[other]});
    free_from = std::max(free_from, offsets[other] + instance[other].bytes);
  }
  if (free_from < ceiling) gaps.push_back({free_from, ceiling});
  return gaps;
}

// A gap drawn with a chance in proportion to its size. Where there is none, any address.
Offset DrawCentre(const std::vector<Interval>& gaps, Bytes ceiling, Random& random) {
  Bytes all = 0;
  for (const Interval& gap : gaps) all += gap.end - gap.begin;
  if (all == 0) return random.Next() % ceiling;
  Bytes rest = random.Next() % all;
  for (const Interval& gap : gaps) {
    if (rest < gap.end - gap.begin) return gap.begin + (gap.end - gap.begin) / 2;
    rest -= gap.end - gap.begin;
  }
  return 0;
}

// How far from a gap's centre to take blocks: from the homeless block's size to half of everything, all scales alike.
Bytes DrawReach(Bytes bytes, Bytes ceiling, Random& random) {
  std::uint32_t doublings = 1;
  while (bytes << doublings < ceiling / 2) ++doublings;
  const Bytes reach = bytes << random.Below(doublings);
  return reach / 2 + random.Next() % reach;
}

Interval About(Offset centre, Bytes reach) { return {centre > reach ? centre - reach : 0, centre + reach}; }

bool Touches(const Interval& interval, Offset begin, Offset end) {
  return begin < interval.end && end > interval.begin;
}

// Positions before and after the block's life; often unequal.
Span DrawTimes(const Span& life, std::uint32_t positions, Random& random) {
  const std::uint32_t margin = 1u << random.Below(kMarginBits);
  const std::uint32_t before = random.Below(2) == 0 ? margin : margin / 8;
  const std::uint32_t after = random.Below(2) == 0 ? margin : random.Below(margin) + 1;
  return {life.begin > before ? life.begin - before : 0, std::min(positions, life.end + after)};
}

bool LivesWithin(const Item& item, const Span& times) {
  const auto inside = [&](const Span& span) { return times.begin <= span.begin && span.end <= times.end; };
  return inside(item.span) && (item.second.empty() || inside(item.second));
}

std::uint32_t DistanceInTime(const Item& item, const Span& life) {
  if (item.span.Intersects(life)) return 0;
  return item.span.end <= life.begin ? life.begin - item.span.end + 1 : item.span.begin - life.end + 1;
}

}  // namespace

std::vector<BlockIndex> ChooseWindow(const Instance& instance, std::span<const Offset> offsets,
                                     std::span<const BlockIndex> by_offset, BlockIndex homeless, Bytes ceiling,
                                     Random& random) {
  const Item& item = instance[homeless];
  const Span times = DrawTimes(item.span, instance.positions(), random);
  const std::vector<Interval> gaps = GapsDuring(instance, offsets, by_offset, item, ceiling);
  const Bytes reach = DrawReach(item.bytes, ceiling, random);
  const Interval first = About(DrawCentre(gaps, ceiling, random), reach);
  // A second place to trade with, now and then.
  const Interval second = random.Below(2) == 0 ? first : About(DrawCentre(gaps, ceiling, random), reach);
  const std::size_t most = kLeastTaken + random.Below(kMostTaken - kLeastTaken);

  std::vector<BlockIndex> near;
  for (const BlockIndex other : by_offset) {
    const Offset begin = offsets[other];
    const Offset end = begin + instance[other].bytes;
    if (!Touches(first, begin, end) && !Touches(second, begin, end)) continue;
    if (LivesWithin(instance[other], times)) near.push_back(other);
  }
  std::sort(near.begin(), near.end(), [&](BlockIndex a, BlockIndex b) {
    const std::uint32_t x = DistanceInTime(instance[a], item.span);
    const std::uint32_t y = DistanceInTime(instance[b], item.span);
    return x != y ? x < y : a < b;
  });
  if (near.size() > most) near.resize(most);
  near.insert(near.begin(), homeless);
  return near;
}

}  // namespace stalloc::planner
