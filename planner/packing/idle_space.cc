#include "planner/packing/idle_space.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <map>
#include <tuple>
#include <utility>

#include "planner/packing/address_cover.h"

namespace stalloc::planner {
namespace {

// A block's stay in the cycle, as positions from 0.
struct Stay {
  Tick begin = 0;
  Tick end = 0;
  Offset low = 0;
  Offset high = 0;
};

// A free range from when it came to be until it changed.
struct Gap {
  Offset low = 0;
  Offset high = 0;
  Tick begin = 0;
  Tick end = 0;
};

struct StayEvent {
  Tick tick;
  std::uint32_t stay;
};

// Positions at which something happens; ends and begins apart, for ends come first.
struct Schedule {
  std::vector<StayEvent> ends;    // ascending
  std::vector<StayEvent> begins;  // ascending
};

std::vector<Stay> StaysInCycle(const Problem& problem, const Packing& packing, const CycleAxis& cycle) {
  std::vector<Stay> stays;
  const auto add = [&](const Lifetime& life, Offset low, Offset high) {
    const Tick begin = std::max(life.begin, cycle.begin) - cycle.begin;
    const Tick end = std::min(life.end, cycle.end) - cycle.begin;
    if (begin < end) stays.push_back({begin, end, low, high});
  };
  for (std::size_t i = 0; i < problem.blocks.size(); ++i) {
    const Block& block = problem.blocks[i];
    const Offset low = packing.offsets[i];
    add(block.life, low, low + block.bytes);
    if (block.second_life) add(*block.second_life, low, low + block.bytes);
  }
  return stays;
}

// Three rounds of the cycle: what wraps has its middle in the second.
constexpr Tick kRounds = 3;

std::vector<Stay> Repeated(const std::vector<Stay>& stays, Tick length) {
  std::vector<Stay> repeated;
  repeated.reserve(static_cast<std::size_t>(kRounds) * stays.size());
  for (Tick round = 0; round < kRounds; ++round) {
    for (const Stay& stay : stays) {
      repeated.push_back({stay.begin + round * length, stay.end + round * length, stay.low, stay.high});
    }
  }
  return repeated;
}

Schedule ScheduleOf(const std::vector<Stay>& stays) {
  Schedule schedule;
  for (std::size_t i = 0; i < stays.size(); ++i) {
    schedule.begins.push_back({stays[i].begin, static_cast<std::uint32_t>(i)});
    schedule.ends.push_back({stays[i].end, static_cast<std::uint32_t>(i)});
  }
  const auto earlier = [](const StayEvent& a, const StayEvent& b) {
    return std::tie(a.tick, a.stay) < std::tie(b.tick, b.stay);
  };
  std::sort(schedule.begins.begin(), schedule.begins.end(), earlier);
  std::sort(schedule.ends.begin(), schedule.ends.end(), earlier);
  return schedule;
}

// Calls at_tick(tick, first end, past the last end, first begin, past the last begin) for every tick with events.
template <typename AtTick>
void ForEachTick(const Schedule& schedule, AtTick at_tick) {
  auto end = schedule.ends.begin();
  auto begin = schedule.begins.begin();
  while (end != schedule.ends.end()) {  // whatever begins also ends
    const Tick tick = begin == schedule.begins.end() ? end->tick : std::min(end->tick, begin->tick);
    const auto is_now = [tick](const StayEvent& event) { return event.tick == tick; };
    const auto ends = std::find_if_not(end, schedule.ends.end(), is_now);
    const auto begins = std::find_if_not(begin, schedule.begins.end(), is_now);
    at_tick(tick, std::span(end, ends), std::span(begin, begins));
    end = ends;
    begin = begins;
  }
}

// The free ranges of the arena as they come and go.
class GapSweep {
 public:
  GapSweep(const std::vector<Stay>& stays, Bytes height) : stays_(stays) {
    if (height > 0) free_[0] = {height, 0};
  }

  std::vector<Gap> Run(const Schedule& schedule, Tick end) {
    ForEachTick(schedule, [this](Tick tick, std::span<const StayEvent> ends, std::span<const StayEvent> begins) {
      now_ = tick;
      for (const StayEvent& event : ends) Free(stays_[event.stay]);
      for (const StayEvent& event : begins) Take(stays_[event.stay]);
    });
    now_ = end;
    while (!free_.empty()) Close(free_.begin());
    return std::move(gaps_);
  }

 private:
  struct Range {
    Offset high = 0;
    Tick since = 0;
  };
  using Place = std::map<Offset, Range>::iterator;

  Place Close(Place gap) {
    if (gap->second.since < now_) gaps_.push_back({gap->first, gap->second.high, gap->second.since, now_});
    return free_.erase(gap);
  }

  void Free(const Stay& stay) {
    Offset low = stay.low;
    Offset high = stay.high;
    auto next = free_.lower_bound(low);
    if (next != free_.end() && next->first == high) {
      high = next->second.high;
      next = Close(next);
    }
    if (next != free_.begin() && std::prev(next)->second.high == low) {
      low = std::prev(next)->first;
      Close(std::prev(next));
    }
    free_[low] = {high, now_};
  }

  // The stay lies inside one free range: the packing is valid.
  void Take(const Stay& stay) {
    const auto gap = std::prev(free_.upper_bound(stay.low));
    const Offset low = gap->first;
    const Offset high = gap->second.high;
    Close(gap);
    if (low < stay.low) free_[low] = {stay.low, now_};
    if (stay.high < high) free_[stay.high] = {high, now_};
  }

  const std::vector<Stay>& stays_;
  std::map<Offset, Range> free_;
  std::vector<Gap> gaps_;
  Tick now_ = 0;
};

// The last tick written to each address; greatest over a range. Ticks are written in ascending order.
class LatestTick {
 public:
  explicit LatestTick(const std::vector<Offset>& boundaries)
      : boundaries_(boundaries),
        leaves_(std::bit_ceil(std::max<std::size_t>(boundaries.size(), 1))),
        whole_(2 * leaves_, kNever),
        any_(2 * leaves_, kNever) {}

  static constexpr Tick kNever = -1;

  void Write(Offset low, Offset high, Tick tick) {
    const auto [first, last] = Leaves(low, high);
    for (std::size_t l = first, r = last + 1; l < r; l >>= 1, r >>= 1) {
      if (l & 1) whole_[l] = any_[l] = tick, ++l;
      if (r & 1) --r, whole_[r] = any_[r] = tick;
    }
    // Ascending ticks: the newest is the greatest in every node above.
    for (std::size_t node = first >> 1; node > 0; node >>= 1) any_[node] = tick;
    for (std::size_t node = last >> 1; node > 0; node >>= 1) any_[node] = tick;
  }

  [[nodiscard]] Tick Greatest(Offset low, Offset high) const {
    const auto [first, last] = Leaves(low, high);
    Tick greatest = kNever;
    for (std::size_t l = first, r = last + 1; l < r; l >>= 1, r >>= 1) {
      if (l & 1) greatest = std::max(greatest, any_[l++]);
      if (r & 1) greatest = std::max(greatest, any_[--r]);
    }
    for (std::size_t node = first; node > 0; node >>= 1) greatest = std::max(greatest, whole_[node]);
    for (std::size_t node = last; node > 0; node >>= 1) greatest = std::max(greatest, whole_[node]);
    return greatest;
  }

 private:
  [[nodiscard]] std::pair<std::size_t, std::size_t> Leaves(Offset low, Offset high) const {
    const auto index = [this](Offset boundary) {
      return static_cast<std::size_t>(std::lower_bound(boundaries_.begin(), boundaries_.end(), boundary) -
                                      boundaries_.begin());
    };
    return {leaves_ + index(low), leaves_ + index(high) - 1};
  }

  const std::vector<Offset>& boundaries_;
  const std::size_t leaves_;
  std::vector<Tick> whole_;  // written to the node as a whole
  std::vector<Tick> any_;    // written to any part of it
};

std::vector<Offset> Boundaries(const std::vector<Stay>& stays, Bytes height) {
  std::vector<Offset> boundaries = {0, height};
  for (const Stay& stay : stays) {
    boundaries.push_back(stay.low);
    boundaries.push_back(stay.high);
  }
  std::sort(boundaries.begin(), boundaries.end());
  boundaries.erase(std::unique(boundaries.begin(), boundaries.end()), boundaries.end());
  return boundaries;
}

// For each gap, the latest end of a stay in its bytes before it; kNever: none.
std::vector<Tick> ExtendedBegins(const std::vector<Stay>& stays, const Schedule& schedule, const std::vector<Gap>& gaps,
                                 const std::vector<Offset>& boundaries) {
  std::vector<std::uint32_t> order(gaps.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::uint32_t>(i);
  std::sort(order.begin(), order.end(),
            [&](std::uint32_t a, std::uint32_t b) { return std::tie(gaps[a].begin, a) < std::tie(gaps[b].begin, b); });
  LatestTick latest(boundaries);
  std::vector<Tick> begins(gaps.size());
  auto event = schedule.ends.begin();
  for (const std::uint32_t gap : order) {
    for (; event != schedule.ends.end() && event->tick <= gaps[gap].begin; ++event) {
      latest.Write(stays[event->stay].low, stays[event->stay].high, event->tick);
    }
    begins[gap] = latest.Greatest(gaps[gap].low, gaps[gap].high);
  }
  return begins;
}

// Time backwards, so that the ends of the one are the beginnings of the other.
template <typename Piece>
std::vector<Piece> Mirrored(std::vector<Piece> pieces, Tick end) {
  for (Piece& piece : pieces) {
    const Tick begin = piece.begin;
    piece.begin = end - piece.end;
    piece.end = end - begin;
  }
  return pieces;
}

// Gaps of the second round, stretched in time and brought back to one round; each once.
std::vector<IdleRange> StretchedRanges(const std::vector<Stay>& stays, Bytes height, Tick length) {
  const Tick axis = kRounds * length;
  const Schedule schedule = ScheduleOf(stays);
  std::vector<Gap> gaps = GapSweep(stays, height).Run(schedule, axis);
  std::erase_if(gaps, [&](const Gap& gap) {
    const bool whole = gap.end - gap.begin >= length;
    return !whole && (gap.begin < length || gap.begin >= 2 * length);
  });
  const std::vector<Offset> boundaries = Boundaries(stays, height);
  const std::vector<Stay> mirrored = Mirrored(stays, axis);
  const std::vector<Tick> begins = ExtendedBegins(stays, schedule, gaps, boundaries);
  const std::vector<Tick> ends = ExtendedBegins(mirrored, ScheduleOf(mirrored), Mirrored(gaps, axis), boundaries);
  std::vector<IdleRange> ranges;
  for (std::size_t i = 0; i < gaps.size(); ++i) {
    const Tick begin = std::max(begins[i], Tick{0});
    const Tick end = axis - std::max(ends[i], Tick{0});
    const bool whole = end - begin >= length;
    ranges.push_back(
        {gaps[i].low, gaps[i].high - gaps[i].low, whole ? 0 : begin % length, std::min(end - begin, length)});
  }
  return ranges;
}

double Area(const IdleRange& range) { return static_cast<double>(range.bytes) * static_cast<double>(range.length); }

auto ByBegin(const IdleRange& range) { return std::tuple(range.begin, range.offset, range.bytes, range.length); }

void SortAndReduce(const IdleSpaceOptions& options, std::vector<IdleRange>& ranges) {
  const auto by_begin = [](const IdleRange& a, const IdleRange& b) { return ByBegin(a) < ByBegin(b); };
  std::erase_if(ranges, [&](const IdleRange& range) {
    return range.bytes < options.min_bytes || range.length < options.min_length;
  });
  std::sort(ranges.begin(), ranges.end(), by_begin);
  ranges.erase(std::unique(ranges.begin(), ranges.end()), ranges.end());
  if (ranges.size() <= options.max_ranges) return;
  std::sort(ranges.begin(), ranges.end(), [](const IdleRange& a, const IdleRange& b) {
    return std::tuple(-Area(a), ByBegin(a)) < std::tuple(-Area(b), ByBegin(b));
  });
  ranges.resize(options.max_ranges);
  std::sort(ranges.begin(), ranges.end(), by_begin);
}

// Ranges as stays of one round; what wraps becomes two.
std::vector<Stay> StaysOf(const std::vector<IdleRange>& ranges, Tick length) {
  std::vector<Stay> stays;
  for (const IdleRange& range : ranges) {
    const Tick end = range.begin + range.length;
    stays.push_back({range.begin, std::min(end, length), range.offset, range.offset + range.bytes});
    if (end > length) stays.push_back({0, end - length, range.offset, range.offset + range.bytes});
  }
  return stays;
}

// Bytes of [0, height) outside of all stays, summed over `length` positions.
double FreeArea(const std::vector<Stay>& stays, Bytes height, Tick length) {
  AddressCover cover(Boundaries(stays, height));
  double area = 0;
  Tick now = 0;
  const auto advance = [&](Tick tick) {
    area += static_cast<double>(tick - now) * static_cast<double>(cover.free_bytes());
    now = tick;
  };
  ForEachTick(ScheduleOf(stays), [&](Tick tick, std::span<const StayEvent> ends, std::span<const StayEvent> begins) {
    advance(tick);
    for (const StayEvent& event : ends) cover.Remove(stays[event.stay].low, stays[event.stay].high);
    for (const StayEvent& event : begins) cover.Add(stays[event.stay].low, stays[event.stay].high);
  });
  advance(length);
  return area;
}

}  // namespace

IdleSpace FindIdleSpace(const Problem& problem, const Packing& packing, const CycleAxis& cycle,
                        const IdleSpaceOptions& options) {
  const std::vector<Stay> stays = StaysInCycle(problem, packing, cycle);
  const Tick length = cycle.length();
  IdleSpace space;
  space.idle = FreeArea(stays, packing.height, length);
  space.ranges = StretchedRanges(Repeated(stays, length), packing.height, length);
  SortAndReduce(options, space.ranges);
  const double all = static_cast<double>(packing.height) * static_cast<double>(length);
  space.described = all - FreeArea(StaysOf(space.ranges, length), packing.height, length);
  return space;
}

}  // namespace stalloc::planner
