#include "planner/report/unused_spans.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <string>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "planner/analysis/cycle.h"
#include "planner/analysis/sweep.h"
#include "planner/facts/layer_pattern.h"

namespace stalloc::planner {
namespace {

constexpr std::uint32_t kLeastEvents = 16;
constexpr std::uint32_t kMovedShare = 100;
constexpr std::uint32_t kIdleShare = 10;
constexpr Bytes kWorthShare = 500;  // of the peak: what saves less comes in the order of the rest

// Events of one iteration, at the mean; of the whole trace where it has none.
std::uint64_t IterationEvents(const DeviceFacts& facts) {
  const std::vector<PhaseSpan>& spans = facts.phases.spans();
  const auto first = std::find_if(spans.begin(), spans.end(), [](const PhaseSpan& span) { return span.segment > 0; });
  if (first == spans.end()) return facts.events;
  return (facts.events - first->begin_event) / spans.back().segment;
}

// For a use: needed after the event before it.
std::uint32_t NeededBehind(const BlockUses::Use& use) { return use.event == 0 ? 0 : use.event - 1; }

// Live bytes after each event, and the run's peak if some spans were not there.
class Levels {
 public:
  explicit Levels(const DeviceFacts& facts) : device_(facts.device), live_(facts.events + 1) {
    Sweep sweep(device_);
    for (SweepStep step; sweep.Next(&step);) {
      const auto bytes = static_cast<std::int64_t>(device_.allocations[step.allocation].bytes);
      live_[step.event] += step.is_free ? -bytes : bytes;
    }
    std::partial_sum(live_.begin(), live_.end(), live_.begin());
    peak_ = static_cast<std::uint32_t>(std::max_element(live_.begin(), live_.end()) - live_.begin());
  }

  // The first event after which most bytes live.
  [[nodiscard]] std::uint32_t peak_event() const { return peak_; }

  // `spans`: pointers to those that are not there.
  [[nodiscard]] Bytes PeakWithout(const std::vector<const UnusedSpan*>& spans) const {
    std::vector<std::pair<std::uint32_t, std::int64_t>> changes;
    for (const UnusedSpan* span : spans) {
      const auto bytes = static_cast<std::int64_t>(device_.allocations[span->block].bytes);
      changes.push_back({span->begin, -bytes});
      changes.push_back({span->end, bytes});
    }
    std::sort(changes.begin(), changes.end());
    std::int64_t most = 0;
    std::int64_t change = 0;
    std::size_t next = 0;
    for (std::size_t event = 0; event < live_.size(); ++event) {
      for (; next < changes.size() && changes[next].first == event; ++next) change += changes[next].second;
      most = std::max(most, live_[event] + change);
    }
    return static_cast<Bytes>(most);
  }

 private:
  const DeviceTrace& device_;
  std::vector<std::int64_t> live_;
  std::uint32_t peak_ = 0;
};

struct Member {
  UnusedGroup group;
  std::vector<const UnusedSpan*> spans;
  absl::flat_hash_set<std::uint32_t> layers;
};

// By layer, a number that those of one pattern share.
std::vector<std::uint32_t> PatternNumbers(const std::vector<std::string>& layers) {
  std::map<std::string, std::uint32_t> known;
  std::vector<std::uint32_t> numbers;
  for (const std::string& layer : layers) {
    numbers.push_back(known.try_emplace(LayerPattern(layer), static_cast<std::uint32_t>(known.size())).first->second);
  }
  return numbers;
}

// Spans that are alike, in the order of their first blocks.
std::vector<Member> GroupSpans(const DeviceFacts& facts, const std::vector<UnusedSpan>& spans,
                               std::uint32_t peak_event) {
  using Key = std::tuple<UnusedKind, Bytes, MemoryClass, std::uint32_t, std::uint32_t, std::uint32_t>;
  absl::flat_hash_map<Key, std::size_t> known;
  std::vector<Member> members;
  SiteNumbers sites(facts.calls);
  const std::vector<std::uint32_t> patterns = PatternNumbers(facts.layers.names());
  const auto time_of = [&](std::uint32_t event) {
    return event < facts.clock.time_ns.size() ? facts.clock.time_ns[event] : facts.clock.end_ns();
  };
  for (const UnusedSpan& span : spans) {
    const Bytes bytes = facts.device.allocations[span.block].bytes;
    const BlockFact& fact = facts.blocks[span.block];
    // What one line of the program leaves is one group, in the set-up's iteration and in the last one, too.
    const bool by_line = span.kind == UnusedKind::kLate && fact.stack != 0;
    const Key key =
        by_line ? Key{span.kind, 0, MemoryClass::kOther, 0, 0, sites.Of(fact.stack)}
                : Key{span.kind, bytes, fact.memory_class, facts.role_of[fact.phase], patterns[fact.layer], fact.stack};
    const auto [found, is_new] = known.try_emplace(key, members.size());
    if (is_new) members.emplace_back();
    Member& member = members[found->second];
    UnusedGroup& group = member.group;
    const std::int64_t ns = time_of(span.end) - time_of(span.begin);
    const Bytes largest = is_new ? 0 : facts.device.allocations[group.block].bytes;
    if (bytes > largest || (bytes == largest && span.end - span.begin > group.events)) {
      group.kind = span.kind;
      group.block = span.block;
      group.before = span.before;
      group.after = span.after;
      group.events = span.end - span.begin;
      group.ns = ns;
    }
    ++group.count;
    member.layers.insert(fact.layer);
    group.layers = member.layers.size();
    group.byte_seconds += static_cast<double>(bytes) * static_cast<double>(ns) * 1e-9;
    if (span.begin <= peak_event && peak_event < span.end) group.at_peak += bytes;
    member.spans.push_back(&span);
  }
  return members;
}

// The `most` members that `is_more` puts first are kept.
template <typename IsMore>
void KeepFirst(const std::vector<Member>& members, std::size_t most, const IsMore& is_more, std::vector<bool>* kept) {
  std::vector<std::size_t> order(members.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return is_more(members[a].group, members[b].group); });
  for (std::size_t i = 0; i < std::min(most, order.size()); ++i) (*kept)[order[i]] = true;
}

bool IsJudged(const Allocation& allocation) { return (allocation.flags & (kAllocCaptured | kAllocParallel)) == 0; }

// What blocks of one variable have in common: size, stack, and the operation that uses them last. Not their class,
// which is another for the last iteration's blocks, whose end nobody sees.
using Sister = std::tuple<Bytes, std::uint32_t, std::uint32_t>;

Sister SisterOf(const DeviceFacts& facts, std::uint32_t block, std::uint32_t operation) {
  return {facts.device.allocations[block].bytes, facts.blocks[block].stack, operation};
}

// A variable still holds its last block where the trace ends: it is as late as its sisters were.
void AddUnended(const DeviceFacts& facts, const BlockUses& uses, std::vector<UnusedSpan>* spans) {
  absl::flat_hash_set<Sister> late;
  for (const UnusedSpan& span : *spans) {
    if (span.kind == UnusedKind::kLate) late.insert(SisterOf(facts, span.block, span.before));
  }
  const auto end = static_cast<std::uint32_t>(facts.events);
  for (std::uint32_t i = 0; i < facts.device.allocations.size() && !late.empty(); ++i) {
    const Allocation& allocation = facts.device.allocations[i];
    const std::span<const BlockUses::Use> used = uses.Of(i);
    const bool ends = allocation.freed() && !FreedAtExit(facts.device, allocation);
    if (used.empty() || ends || !IsJudged(allocation)) continue;
    if (!late.contains(SisterOf(facts, i, used.back().operation))) continue;
    spans->push_back({i, UnusedKind::kLate, used.back().event, end, used.back().operation, kNone});
  }
}

}  // namespace

const char* UnusedKindName(UnusedKind kind) {
  switch (kind) {
    case UnusedKind::kEarly:
      return "early";
    case UnusedKind::kLate:
      return "late";
    case UnusedKind::kIdle:
      return "idle";
  }
  return "?";
}

LongSpans WhatIsLong(const DeviceFacts& facts) {
  const auto iteration = static_cast<std::uint32_t>(IterationEvents(facts));
  return {std::max(kLeastEvents, iteration / kMovedShare), std::max(kLeastEvents, iteration / kIdleShare)};
}

std::vector<UnusedSpan> FindUnusedSpans(const DeviceFacts& facts, const BlockUses& uses, const LongSpans& least) {
  std::vector<UnusedSpan> spans;
  for (std::uint32_t i = 0; i < facts.device.allocations.size(); ++i) {
    const Allocation& allocation = facts.device.allocations[i];
    const std::span<const BlockUses::Use> used = uses.Of(i);
    if (used.empty() || !IsJudged(allocation)) continue;
    const auto add = [&](UnusedKind kind, std::uint32_t begin, std::uint32_t end, std::uint32_t before,
                         std::uint32_t after) {
      const std::uint32_t enough = kind == UnusedKind::kIdle ? least.idle : least.moved;
      if (end > begin && end - begin >= enough) spans.push_back({i, kind, begin, end, before, after});
    };
    add(UnusedKind::kEarly, allocation.event, NeededBehind(used.front()), kNone, used.front().operation);
    for (std::size_t k = 1; k < used.size(); ++k) {
      add(UnusedKind::kIdle, used[k - 1].event, NeededBehind(used[k]), used[k - 1].operation, used[k].operation);
    }
    if (allocation.freed()) {
      add(UnusedKind::kLate, used.back().event, allocation.free_event, used.back().operation, kNone);
    }
  }
  AddUnended(facts, uses, &spans);
  return spans;
}

UnusedView ViewUnused(const DeviceFacts& facts, const BlockUses& uses, std::size_t most) {
  UnusedView view;
  view.least = WhatIsLong(facts);
  const std::vector<UnusedSpan> spans = FindUnusedSpans(facts, uses, view.least);
  const Levels levels(facts);
  const std::uint32_t peak_event = levels.peak_event();
  for (std::uint32_t i = 0; i < facts.device.allocations.size(); ++i) {
    const Allocation& allocation = facts.device.allocations[i];
    if (!uses.Of(i).empty()) continue;
    ++view.unseen_blocks;
    if (allocation.event <= peak_event && peak_event < allocation.free_event) view.unseen_at_peak += allocation.bytes;
  }
  std::array<std::vector<const UnusedSpan*>, kUnusedKinds> by_kind;
  const std::uint32_t peak_segment = facts.phases.spans()[facts.phases.At(peak_event)].segment;
  for (const UnusedSpan& span : spans) {
    by_kind[static_cast<std::size_t>(span.kind)].push_back(&span);
    const bool in_iteration = facts.phases.spans()[facts.phases.At(span.begin)].segment == peak_segment;
    if (span.kind == UnusedKind::kIdle && in_iteration) {
      view.idle_moved += facts.device.allocations[span.block].bytes;
    }
  }
  auto& [early, late, idle] = by_kind;
  view.early_peak = levels.PeakWithout(early);
  view.late_peak = levels.PeakWithout(late);
  view.idle_peak = levels.PeakWithout(idle);
  early.insert(early.end(), late.begin(), late.end());
  view.early_and_late_peak = levels.PeakWithout(early);

  const std::vector<Member> members = GroupSpans(facts, spans, peak_event);
  std::vector<bool> kept(members.size(), false);
  KeepFirst(
      members, most, [](const UnusedGroup& a, const UnusedGroup& b) { return a.at_peak > b.at_peak; }, &kept);
  KeepFirst(
      members, most, [](const UnusedGroup& a, const UnusedGroup& b) { return a.byte_seconds > b.byte_seconds; }, &kept);
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (!kept[i]) continue;
    view.groups.push_back(members[i].group);
    view.groups.back().peak = levels.PeakWithout(members[i].spans);
  }
  const Bytes live = levels.PeakWithout({});
  const auto rank = [&](const UnusedGroup& group) {
    const Bytes saved = live - group.peak;
    return std::tuple(saved < live / kWorthShare ? 0 : saved, group.at_peak, group.byte_seconds);
  };
  std::stable_sort(view.groups.begin(), view.groups.end(),
                   [&](const UnusedGroup& a, const UnusedGroup& b) { return rank(a) > rank(b); });
  return view;
}

}  // namespace stalloc::planner
