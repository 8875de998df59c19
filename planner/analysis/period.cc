#include "planner/analysis/period.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <map>
#include <utility>

#include "planner/analysis/sweep.h"
#include "planner/analysis/traced_rank.h"

namespace stalloc::planner {
namespace {

using Places = std::vector<std::size_t>;  // of requests, ascending

constexpr std::size_t kOften = 64;  // a size that occurs more often says little: temporaries of every layer
constexpr std::size_t kLeastSizes = 3;
constexpr std::size_t kCandidates = 60;
constexpr std::size_t kLeastPeriod = 8;  // fewer requests are no iteration
constexpr double kRepeated = 0.5;        // of the sizes' places: below it nothing repeats
constexpr double kAsGood = 0.98;
constexpr double kAlike = 0.8;  // of the likeness of the last two iterations, for an earlier one to belong to the loop
// Live bytes come back to the same level, but for so much of what an iteration has above it. A program that leaks more
// does not get far; a layer that is recomputed keeps its input alone, a thirtieth of what it needs inside.
constexpr double kComesBack = 0.02;

// The distance between each place and the one `step` places later, where it is the same for the last ones: a size that
// comes `step` times an iteration. 0: there is none.
std::size_t SpacingOf(const Places& places) {
  const std::size_t count = places.size();
  for (std::size_t step = 1; step <= count / 2; ++step) {
    const std::size_t gap = places[count - 1] - places[count - 1 - step];
    bool even = places[count - 2] - places[count - 2 - step] == gap;
    for (std::size_t i = count - step; i < count; ++i) even = even && places[i] - places[i - step] == gap;
    if (even) return gap;
  }
  return 0;
}

// Share of the places in the second half that are places again `lag` requests earlier; each size counts the same.
double RepeatedShare(const std::vector<Places>& sizes, std::size_t lag, std::size_t requests) {
  double total = 0;
  for (const Places& places : sizes) {
    const auto late = std::lower_bound(places.begin(), places.end(), std::max(lag, requests / 2));
    const auto again = std::count_if(late, places.end(), [&](std::size_t place) {
      return std::binary_search(places.begin(), places.end(), place - lag);
    });
    if (late != places.end()) total += static_cast<double>(again) / static_cast<double>(places.end() - late);
  }
  return total / static_cast<double>(sizes.size());
}

// By a size's places, in the order in which sizes first come.
std::vector<Places> PlacesOfSizes(const std::vector<Bytes>& sizes) {
  std::map<Bytes, std::size_t> known;
  std::vector<Places> places;
  for (std::size_t at = 0; at < sizes.size(); ++at) {
    const auto [found, is_new] = known.try_emplace(sizes[at], places.size());
    if (is_new) places.emplace_back();
    places[found->second].push_back(at);
  }
  return places;
}

// Requests an iteration, the most likely first.
std::vector<std::size_t> FindPeriods(const std::vector<Bytes>& sizes) {
  std::vector<Places> even;
  std::vector<std::pair<std::size_t, std::size_t>> votes;  // spacing, how many sizes have it
  for (Places& places : PlacesOfSizes(sizes)) {
    if (places.size() < 3 || places.size() > kOften || places.back() - places.front() < sizes.size() / 3) continue;
    const std::size_t spacing = SpacingOf(places);
    if (spacing == 0) continue;
    even.push_back(std::move(places));
    const auto vote = std::find_if(votes.begin(), votes.end(), [&](const auto& one) { return one.first == spacing; });
    vote == votes.end() ? votes.push_back({spacing, 1}) : void(++vote->second);
  }
  if (even.size() < kLeastSizes) return {};
  std::stable_sort(votes.begin(), votes.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  votes.resize(std::min(votes.size(), kCandidates));
  std::vector<std::pair<double, std::size_t>> scores;
  double best = 0;
  for (const auto& [lag, count] : votes) {
    if (lag < kLeastPeriod || lag > sizes.size() / 2) continue;
    scores.push_back({RepeatedShare(even, lag, sizes.size()), lag});
    best = std::max(best, scores.back().first);
  }
  std::erase_if(scores, [](const auto& one) { return one.first < kRepeated; });
  const double good = kAsGood * best;
  std::stable_sort(scores.begin(), scores.end(), [&](const auto& a, const auto& b) {
    if (a.first >= good && b.first >= good) return a.second < b.second;  // the shortest of those that are as good
    return a.first > b.first;
  });
  std::vector<std::size_t> periods;
  for (const auto& [score, lag] : scores) periods.push_back(lag);
  return periods;
}

// Share of the requests from `begin` that have one of the same size a period later.
double LikenessOf(const std::vector<Bytes>& sizes, std::size_t begin, std::size_t period) {
  const std::size_t end = std::min(begin + period, sizes.size() - period);
  if (end <= begin) return 1;
  std::size_t same = 0;
  for (std::size_t at = begin; at < end; ++at) same += sizes[at] == sizes[at + period];
  return static_cast<double>(same) / static_cast<double>(end - begin);
}

std::vector<std::size_t> BeginsOf(const std::vector<Bytes>& sizes, const std::vector<Bytes>& live_before,
                                  std::size_t period) {
  // Not in the last period, which may be an evaluation or cut off, if there is another.
  const std::size_t after = (sizes.size() >= 3 * period ? 2 : 1) * period;
  const auto begin = live_before.begin() + static_cast<std::ptrdiff_t>(sizes.size() - std::min(sizes.size(), after));
  const auto end =
      live_before.begin() + std::min(std::distance(live_before.begin(), begin) + static_cast<std::ptrdiff_t>(period),
                                     static_cast<std::ptrdiff_t>(sizes.size()));
  const auto first = static_cast<std::size_t>(std::min_element(begin, end) - live_before.begin());
  std::vector<std::size_t> cuts;  // descending
  if (first + period < sizes.size()) cuts.push_back(first + period);
  cuts.push_back(first);
  double enough = -1;
  while (cuts.back() >= period) {
    const double likeness = LikenessOf(sizes, cuts.back() - period, period);
    if (likeness < enough) break;
    if (enough < 0) enough = kAlike * likeness;
    cuts.push_back(cuts.back() - period);
  }
  std::reverse(cuts.begin(), cuts.end());
  return cuts;
}

// The bytes by which each supposed iteration lifts what is live; absent where it comes back, as iterations do.
//
// `levels`: live bytes where each begins, and where the last one ends; `tops`: the most inside each. One in the middle
// decides: the first iterations make state that stays.
std::optional<std::int64_t> PiledUp(const std::vector<Bytes>& levels, const std::vector<Bytes>& tops) {
  std::vector<std::pair<double, std::int64_t>> growths;
  for (std::size_t i = 0; i < tops.size() && i + 1 < levels.size(); ++i) {
    const auto growth = static_cast<std::int64_t>(levels[i + 1]) - static_cast<std::int64_t>(levels[i]);
    const Bytes above = std::max<Bytes>(1, tops[i] - std::min({tops[i], levels[i], levels[i + 1]}));
    growths.push_back({static_cast<double>(std::abs(growth)) / static_cast<double>(above), growth});
  }
  if (growths.empty()) return std::nullopt;
  std::sort(growths.begin(), growths.end());
  const auto& [share, growth] = growths[(growths.size() - 1) / 2];
  return share > kComesBack ? std::optional(growth) : std::nullopt;
}

}  // namespace

std::size_t FindPeriod(const std::vector<Bytes>& sizes) {
  const std::vector<std::size_t> periods = FindPeriods(sizes);
  return periods.empty() ? 0 : periods.front();
}

PeriodCut FindPeriodCut(const std::vector<Bytes>& sizes, const std::vector<Bytes>& live_before) {
  PeriodCut found;
  for (const std::size_t period : FindPeriods(sizes)) {
    std::vector<std::size_t> begins = BeginsOf(sizes, live_before, period);
    std::vector<Bytes> levels;
    std::vector<Bytes> tops;
    for (const std::size_t begin : begins) {
      levels.push_back(live_before[begin]);
      Bytes& top = tops.emplace_back(0);
      for (std::size_t at = begin; at < std::min(begin + period, sizes.size()); ++at) {
        top = std::max(top, live_before[at] + sizes[at]);
      }
    }
    if (begins.back() + period < live_before.size()) levels.push_back(live_before[begins.back() + period]);
    const std::optional<std::int64_t> growth = PiledUp(levels, tops);
    if (!growth.has_value()) return {std::move(begins), std::nullopt};
    if (!found.pile.has_value()) found.pile = Pile{levels.size() - 1, period, *growth};
  }
  return found;
}

namespace {

// Where iterations begin, as events; empty: nowhere.
std::vector<std::uint64_t> BeginEvents(const DeviceTrace& device) {
  std::vector<Bytes> sizes;
  std::vector<Bytes> live_before;
  std::vector<std::uint64_t> events;
  Bytes live = 0;
  Sweep sweep(device);
  for (SweepStep step; sweep.Next(&step);) {
    const Allocation& allocation = device.allocations[step.allocation];
    if (!step.is_free && !allocation.outside) {
      sizes.push_back(allocation.bytes);
      live_before.push_back(live);
      events.push_back(step.event);
    }
    live = step.is_free ? live - allocation.bytes : live + allocation.bytes;
  }
  live_before.push_back(live);
  std::vector<std::uint64_t> begins;
  for (const std::size_t request : FindPeriodCut(sizes, live_before).begins) begins.push_back(events[request]);
  return begins;
}

// Which segment an event is in, where iterations begin at these events.
std::uint32_t SegmentAt(const std::vector<std::uint64_t>& begins, std::uint64_t event) {
  return static_cast<std::uint32_t>(std::upper_bound(begins.begin(), begins.end(), event) - begins.begin());
}

void CutSegments(const std::vector<std::uint64_t>& begins, Segmentation* segmentation) {
  Segment whole = std::move(segmentation->segments.front());
  std::vector<Segment> segments(begins.size() + 1);
  for (std::size_t i = 0; i < segments.size(); ++i) {
    segments[i].begin_event = i == 0 ? whole.begin_event : begins[i - 1];
    segments[i].end_event = i < begins.size() ? begins[i] : whole.end_event;
    segments[i].index = static_cast<std::int32_t>(i) - 1;
  }
  for (const SegmentMark& mark : whole.marks) segments[SegmentAt(begins, mark.event)].marks.push_back(mark);
  segmentation->segments = std::move(segments);
  segmentation->census.by_period = begins.size();
}

void CutDevice(const std::vector<std::uint64_t>& begins, const Segmentation& segmentation,
               const std::vector<Mark>& marks, DeviceTrace* device) {
  device->segments.assign(begins.size() + 1, {});
  for (std::uint32_t i = 0; i < device->allocations.size(); ++i) {
    Allocation& allocation = device->allocations[i];
    allocation.segment = SegmentAt(begins, allocation.event);
    if (allocation.outside) continue;
    std::vector<std::uint32_t>& requests = device->segments[allocation.segment].allocations;
    allocation.ordinal = static_cast<std::uint32_t>(requests.size());
    requests.push_back(i);
  }
  const auto ordinal_at = [&](std::uint32_t segment, std::uint64_t event) {
    const std::vector<std::uint32_t>& requests = device->segments[segment].allocations;
    const auto found =
        std::lower_bound(requests.begin(), requests.end(), event,
                         [&](std::uint32_t i, std::uint64_t at) { return device->allocations[i].event < at; });
    return static_cast<std::uint32_t>(found - requests.begin());
  };
  for (Allocation& allocation : device->allocations) {
    if (!allocation.freed()) continue;
    allocation.free_segment = SegmentAt(begins, allocation.free_event);
    allocation.free_ordinal = ordinal_at(allocation.free_segment, allocation.free_event);
  }
  for (std::uint32_t segment = 0; segment < device->segments.size(); ++segment) {
    for (const SegmentMark& mark : segmentation.segments[segment].marks) {
      if (IsGraphMark(marks[mark.mark])) continue;
      device->segments[segment].phases.push_back({marks[mark.mark], ordinal_at(segment, mark.event)});
    }
  }
}

}  // namespace

void CutByPeriod(TracedRank* traced) {
  if (traced->segmentation.iterations() > 0 || traced->devices.empty()) return;
  const auto busiest = std::max_element(
      traced->devices.begin(), traced->devices.end(),
      [](const DeviceTrace& a, const DeviceTrace& b) { return a.allocations.size() < b.allocations.size(); });
  const std::vector<std::uint64_t> begins = BeginEvents(*busiest);
  if (begins.empty()) return;
  CutSegments(begins, &traced->segmentation);
  for (DeviceTrace& device : traced->devices) {
    CutDevice(begins, traced->segmentation, traced->head.marks, &device);
  }
}

}  // namespace stalloc::planner
