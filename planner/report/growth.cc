#include "planner/report/growth.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "planner/analysis/cycle.h"
#include "planner/analysis/sweep.h"

namespace stalloc::planner {
namespace {

// For a kind whose number of blocks stays (a tensor that is replaced by a longer one): sizes of data vary by chance,
// too.
constexpr std::size_t kRisesOfSizes = kLeakRises + 2;
constexpr std::size_t kFirstJudged = 2;  // segment: the second iteration

struct Kind {
  std::uint32_t allocation = 0;
  Bytes least_bytes = 0;
  Bytes most_bytes = 0;
  std::vector<Bytes> blocks;  // live where segments begin; while counting: changes
  std::vector<Bytes> live;    // bytes
};

// What kinds differ in, but for their sizes: role, layer, call site, tensor. Not in class, which says of the last
// iterations' blocks what nobody sees ending.
using Likeness = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, TensorRole>;

class KindCounter {
 public:
  KindCounter(const DeviceFacts& facts, const Segmentation& segmentation) : facts_(facts), sites_(facts.calls) {
    for (const Segment& segment : segmentation.segments) begins_.push_back(segment.begin_event);
  }

  void Count() {
    for (std::uint32_t i = 0; i < facts_.blocks.size(); ++i) Take(i);
    for (auto& [likeness, sizes] : kinds_) {
      for (auto& [bytes, kind] : sizes) SumUp(kind);
    }
  }

  [[nodiscard]] std::map<Likeness, std::map<Bytes, Kind>>& kinds() { return kinds_; }

 private:
  void Take(std::uint32_t index) {
    const Allocation& allocation = facts_.device.allocations[index];
    const auto first = std::upper_bound(begins_.begin(), begins_.end(), allocation.event);
    const bool stays = !allocation.freed() || FreedAtExit(facts_.device, allocation);
    const auto end = stays ? begins_.end() : std::upper_bound(begins_.begin(), begins_.end(), allocation.free_event);
    if (first == end) return;
    const BlockFact& fact = facts_.blocks[index];
    const Likeness likeness{facts_.role_of[fact.phase], fact.layer, sites_.Of(fact.stack), fact.role};
    Kind& kind = kinds_[likeness][allocation.bytes];
    if (kind.blocks.empty()) {
      kind.least_bytes = kind.most_bytes = allocation.bytes;
      kind.blocks.resize(begins_.size() + 1);
      kind.allocation = index;
    }
    if (allocation.segment + 2 < begins_.size()) kind.allocation = index;
    ++kind.blocks[static_cast<std::size_t>(first - begins_.begin())];
    --kind.blocks[static_cast<std::size_t>(end - begins_.begin())];  // wraps around; the sums do not
  }

  static void SumUp(Kind& kind) {
    for (std::size_t i = 1; i < kind.blocks.size(); ++i) kind.blocks[i] += kind.blocks[i - 1];
    kind.blocks.pop_back();
    for (const Bytes blocks : kind.blocks) kind.live.push_back(blocks * kind.most_bytes);
  }

  const DeviceFacts& facts_;
  std::vector<std::uint64_t> begins_;
  std::map<Likeness, std::map<Bytes, Kind>> kinds_;
  SiteNumbers sites_;
};

std::vector<Bytes> Judged(const std::vector<Bytes>& by_segment) {
  if (by_segment.size() <= kFirstJudged) return {};
  return {by_segment.begin() + kFirstJudged, by_segment.end()};
}

class LeakFinder {
 public:
  explicit LeakFinder(std::map<Likeness, std::map<Bytes, Kind>>& kinds) : kinds_(kinds) {}

  [[nodiscard]] std::vector<Leak> Find() {
    for (auto& [likeness, sizes] : kinds_) {
      std::vector<const Kind*> rest;
      for (const auto& [bytes, kind] : sizes) {
        if (!Take(kind, FindClimb(Judged(kind.blocks), kLeakRises), true)) rest.push_back(&kind);
      }
      if (rest.size() > 1) TakeTogether(rest);
    }
    std::stable_sort(leaks_.begin(), leaks_.end(), [](const Leak& a, const Leak& b) { return a.bytes > b.bytes; });
    return std::move(leaks_);
  }

 private:
  // Sizes that come once each: judged by the number of blocks, or, where that stays, by bytes.
  void TakeTogether(const std::vector<const Kind*>& parts) {
    Kind sum = *parts.front();
    for (auto part = parts.begin() + 1; part != parts.end(); ++part) {
      sum.allocation = std::max(sum.allocation, (*part)->allocation);
      sum.least_bytes = std::min(sum.least_bytes, (*part)->least_bytes);
      sum.most_bytes = std::max(sum.most_bytes, (*part)->most_bytes);
      for (std::size_t i = 0; i < sum.live.size(); ++i) {
        sum.blocks[i] += (*part)->blocks[i];
        sum.live[i] += (*part)->live[i];
      }
    }
    if (Take(sum, FindClimb(Judged(sum.blocks), kLeakRises), true)) return;
    Take(sum, FindClimb(Judged(sum.live), kRisesOfSizes), false);
  }

  bool Take(const Kind& kind, const std::optional<Climb>& climb, bool of_blocks) {
    if (!climb.has_value()) return false;
    const std::size_t since = kFirstJudged + climb->first;
    const std::size_t last = kind.blocks.size() - 1;
    if (kind.live[last] <= kind.live[since]) return false;
    if (of_blocks && kind.blocks[last] - kind.blocks[since] <= GoneElsewhere(kind, since)) return false;
    const auto iterations = static_cast<double>(last - since);
    Leak leak{kind.allocation, kind.least_bytes, kind.most_bytes, static_cast<std::uint32_t>(since), kind.live};
    leak.blocks = (static_cast<double>(kind.blocks[last]) - static_cast<double>(kind.blocks[since])) / iterations;
    leak.bytes = static_cast<double>(kind.live[last] - kind.live[since]) / iterations;
    leaks_.push_back(std::move(leak));
    return true;
  }

  // Blocks of such sizes that other kinds have fewer of now: those of an older kind are replaced, one after the other.
  [[nodiscard]] std::uint64_t GoneElsewhere(const Kind& kind, std::size_t since) const {
    std::uint64_t gone = 0;
    for (const auto& [likeness, sizes] : kinds_) {
      for (auto at = sizes.lower_bound(kind.least_bytes); at != sizes.end() && at->first <= kind.most_bytes; ++at) {
        const std::vector<Bytes>& blocks = at->second.blocks;
        gone += blocks[since] - std::min(blocks[since], blocks.back());
      }
    }
    return gone;
  }

  std::map<Likeness, std::map<Bytes, Kind>>& kinds_;
  std::vector<Leak> leaks_;
};

std::vector<Bytes> LiveAtBegins(const std::map<Likeness, std::map<Bytes, Kind>>& kinds, std::size_t segments) {
  std::vector<Bytes> live(segments);
  for (const auto& [likeness, sizes] : kinds) {
    for (const auto& [bytes, kind] : sizes) {
      for (std::size_t i = 0; i < segments; ++i) live[i] += kind.live[i];
    }
  }
  return live;
}

constexpr double kMuch = 0.2;        // of the peak
constexpr double kAllThrough = 0.6;  // of the iteration, between the first tenth of the bytes and the last
constexpr std::uint64_t kEndParts = 10;

bool IsOfPasses(MemoryClass memory_class) {
  return memory_class == MemoryClass::kActivations || memory_class == MemoryClass::kTemporaries ||
         memory_class == MemoryClass::kDynamic || memory_class == MemoryClass::kOther;
}

std::optional<GrowthInside> FindGrowthInside(const DeviceFacts& facts, const Segmentation& segmentation) {
  const DeviceTrace& device = facts.device;
  const PeakMoment peak = FindPeakMoment(device);
  const std::uint32_t number = device.allocations[peak.allocation].segment;
  const Segment& segment = segmentation.segments[number];
  const std::uint64_t length = segment.end_event - segment.begin_event;
  GrowthInside found;
  std::vector<std::pair<std::uint64_t, Bytes>> made;  // when, ascending
  for (std::uint32_t i = 0; i < device.allocations.size(); ++i) {
    const Allocation& allocation = device.allocations[i];
    if (allocation.segment != number || allocation.outside || !IsOfPasses(facts.blocks[i].memory_class)) continue;
    if (allocation.event > peak.event || allocation.free_event <= peak.event) continue;
    if (allocation.freed() && allocation.free_event + length / kEndParts < segment.end_event) continue;
    if (found.blocks == 0 || allocation.bytes > device.allocations[found.allocation].bytes) found.allocation = i;
    made.push_back({allocation.event, found.bytes});
    found.bytes += allocation.bytes;
    ++found.blocks;
  }
  if (static_cast<double>(found.bytes) < kMuch * static_cast<double>(peak.live_bytes)) return std::nullopt;
  const auto when = [&](Bytes tenths) {  // so many tenths of the bytes were there
    const auto after = std::upper_bound(made.begin(), made.end(), found.bytes / 10 * tenths,
                                        [](Bytes bytes, const auto& each) { return bytes < each.second; });
    return std::prev(after)->first;
  };
  const auto spread = static_cast<double>(when(9) - when(1));
  return spread >= kAllThrough * static_cast<double>(length) ? std::optional(found) : std::nullopt;
}

}  // namespace

std::optional<Climb> FindClimb(const std::vector<Bytes>& values, std::size_t least) {
  Climb climb;
  std::size_t after_fall = 0;
  std::size_t pause = 0;    // since the last rise
  std::size_t longest = 0;  // between two rises
  for (std::size_t i = 1; i < values.size(); ++i) {
    ++pause;
    if (values[i] < values[i - 1]) {
      after_fall = i;
      climb.rises = longest = 0;
    } else if (values[i] > values[i - 1]) {
      if (climb.rises++ == 0) climb.first = i - 1;
      if (climb.rises > 1) longest = std::max(longest, pause);
      pause = 0;
    }
  }
  if (climb.rises < least || pause >= longest) return std::nullopt;
  const auto begin = values.begin() + static_cast<std::ptrdiff_t>(after_fall);
  const bool is_higher = begin == values.begin() || values.back() > *std::max_element(values.begin(), begin);
  return is_higher ? std::optional(climb) : std::nullopt;
}

Growth FindGrowth(const DeviceFacts& facts, const Segmentation& segmentation, std::size_t most_leaks) {
  KindCounter counter(facts, segmentation);
  counter.Count();
  Growth growth;
  growth.begin_live = LiveAtBegins(counter.kinds(), segmentation.segments.size());
  growth.leaks = LeakFinder(counter.kinds()).Find();
  if (growth.leaks.size() > most_leaks) growth.leaks.resize(most_leaks);
  if (!facts.device.allocations.empty()) growth.inside = FindGrowthInside(facts, segmentation);
  return growth;
}

}  // namespace stalloc::planner
