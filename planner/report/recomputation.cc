#include "planner/report/recomputation.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "planner/analysis/sweep.h"
#include "planner/report/largest_keys.h"
#include "planner/report/layer_inputs.h"
#include "planner/report/layer_pattern.h"

namespace stalloc::planner {
namespace {

constexpr Bytes kNoticed = 1000;  // what is a lower share of the peak than one in so many makes no difference
constexpr Bytes kGeneratorState =
    5120;  // torch's CPU generator, which a checkpoint stores to make the same dropout again

// Of one visit.
struct Holding {
  Bytes own = 0;   // made by the forward pass, freed by the backward pass that belongs to it
  Bytes away = 0;  // of these, what nobody else needs: what recomputing would free
  Bytes anew = 0;  // the most that is there at once while the forward pass is run again
  Bytes left = 0;  // made by the forward pass, and there behind the backward pass
  bool kept_known = true;
};

// A step by the end of whatever changes at the event.
struct LiveStep {
  std::uint64_t event = 0;
  std::int64_t live = 0;
};

// What a recomputation adds to what is live, from the event on and at the event alone.
struct LiveChange {
  std::uint64_t event = 0;
  std::int64_t lasting = 0;
  std::int64_t at_once = 0;
};

class Holdings {
 public:
  explicit Holdings(const DeviceFacts& facts) : allocations_(facts.device.allocations) {}

  // Indices of the blocks that were allocated in [begin_event, end_event).
  [[nodiscard]] std::pair<std::size_t, std::size_t> Blocks(std::uint64_t begin_event, std::uint64_t end_event) const {
    const auto at = [&](std::uint64_t event) {
      const auto found = std::lower_bound(allocations_.begin(), allocations_.end(), event,
                                          [](const Allocation& one, std::uint64_t other) { return one.event < other; });
      return static_cast<std::size_t>(found - allocations_.begin());
    };
    return {at(begin_event), at(end_event)};
  }

  [[nodiscard]] Holding Of(const LayerVisit& visit) const {
    Holding holding;
    Bytes largest = 0;
    std::uint64_t last_event = 0;
    const auto [begin, end] = Blocks(visit.forward_begin, visit.forward_end);
    for (std::size_t i = begin; i < end; ++i) {
      const Allocation& allocation = allocations_[i];
      if (allocation.outside || allocation.role != TensorRole::kNone) continue;
      if (allocation.free_event > visit.backward_end) holding.left += allocation.bytes;
      if (allocation.free_event < visit.backward_begin || allocation.free_event > visit.backward_end) continue;
      holding.own += allocation.bytes;
      largest = std::max(largest, allocation.bytes);
      last_event = allocation.event;
    }
    holding.kept_known = visit.kept_bytes != kKeptUnknown;
    const Bytes kept = holding.kept_known ? static_cast<Bytes>(visit.kept_bytes) : largest;
    holding.away = holding.own - std::min(holding.own, kept);
    if (holding.away > 0) holding.anew = MostAtOnce(begin, end, last_event);
    return holding;
  }

 private:
  // Of the blocks [begin, end), up to the event.
  [[nodiscard]] Bytes MostAtOnce(std::size_t begin, std::size_t end, std::uint64_t last_event) const {
    std::vector<std::pair<std::uint32_t, Bytes>> frees;
    for (std::size_t i = begin; i < end && allocations_[i].event <= last_event; ++i) {
      if (allocations_[i].free_event <= last_event)
        frees.push_back({allocations_[i].free_event, allocations_[i].bytes});
    }
    std::sort(frees.begin(), frees.end());
    Bytes live = 0;
    Bytes most = 0;
    auto next = frees.begin();
    for (std::size_t i = begin; i < end && allocations_[i].event <= last_event; ++i) {
      for (; next != frees.end() && next->first < allocations_[i].event; ++next) live -= next->second;
      live += allocations_[i].bytes;
      most = std::max(most, live);
    }
    return most;
  }

  const std::vector<Allocation>& allocations_;
};

class RecomputationFinder {
 public:
  RecomputationFinder(const DeviceFacts& facts, std::uint64_t peak_event)
      : facts_(facts),
        holdings_(facts),
        peak_event_(peak_event),
        visits_(FindLayerVisits(facts.layers, facts.phases)),
        inputs_(facts, visits_) {
    std::int64_t live = 0;
    Sweep sweep(facts.device);
    for (SweepStep step; sweep.Next(&step);) {
      const auto bytes = static_cast<std::int64_t>(facts.device.allocations[step.allocation].bytes);
      live = step.is_free ? live - bytes : live + bytes;
      curve_.push_back({step.event, live});
    }
    for (const LayerVisit& visit : visits_) held_.push_back(holdings_.Of(visit));
  }

  [[nodiscard]] std::vector<Recomputation> Find(std::size_t most_patterns, std::size_t most_layers) const {
    std::map<std::string, std::vector<std::size_t>> visits_of;
    std::map<std::string, Bytes> singles;
    std::map<std::string, Bytes> patterns;
    const std::vector<std::string>& names = facts_.layers.names();
    for (std::size_t i = 0; i < visits_.size(); ++i) {
      if (held_[i].away == 0) continue;
      const std::string& name = names[visits_[i].name];
      const std::string pattern = LayerPattern(name);
      visits_of[name].push_back(i);
      if (IsAwayAtPeak(visits_[i])) singles[name] += held_[i].away;
      if (pattern == name) continue;
      visits_of[pattern].push_back(i);
      if (IsAwayAtPeak(visits_[i])) patterns[pattern] += held_[i].away;
    }
    std::vector<Recomputation> found;
    for (const std::string& name : LargestKeys(patterns, most_patterns)) found.push_back(Of(name, visits_of[name]));
    for (const std::string& name : LargestKeys(singles, most_layers)) found.push_back(Of(name, visits_of[name]));
    return found;
  }

 private:
  [[nodiscard]] bool IsAwayAtPeak(const LayerVisit& visit) const {
    return visit.forward_end <= peak_event_ && peak_event_ < visit.backward_begin;
  }

  [[nodiscard]] std::uint32_t SegmentOf(std::uint64_t event) const {
    return facts_.phases.spans()[facts_.phases.At(event)].segment;
  }

  // `chosen`: indices of visits, ascending.
  [[nodiscard]] Recomputation Of(const std::string& layers, const std::vector<std::size_t>& chosen) const {
    Recomputation found;
    found.layers = layers;
    std::vector<LiveChange> recomputed;
    std::vector<LiveChange> offloaded;
    const std::int64_t generator = facts_.device.device < 0 ? kGeneratorState : 0;
    for (const std::size_t i : chosen) {
      const LayerVisit& visit = visits_[i];
      const Holding& held = held_[i];
      if (IsAwayAtPeak(visit)) found.at_peak += held.away;
      if (SegmentOf(visit.forward_begin) == SegmentOf(peak_event_)) found.moved += held.away;
      found.at_least = found.at_least || !held.kept_known;
      const auto away = static_cast<std::int64_t>(held.away);
      const auto more = static_cast<std::int64_t>(std::max(held.anew, held.own) - held.own);
      recomputed.push_back({visit.forward_end, generator - away, 0});
      recomputed.push_back({visit.backward_begin, away, more});
      recomputed.push_back({visit.backward_end, -generator, 0});
      offloaded.push_back({visit.forward_end, -away, 0});
      offloaded.push_back({visit.backward_begin, away, 0});
    }
    const Bytes left = std::accumulate(chosen.begin(), chosen.end(), Bytes{0},
                                       [&](Bytes sum, std::size_t i) { return sum + held_[i].left; });
    std::vector<KeptInput> kept = inputs_.KeptBy(chosen);
    const auto possible = std::partition(kept.begin(), kept.end(), [](const KeptInput& input) { return input.told; });
    HoldInputs({kept.begin(), possible}, &recomputed);
    const Bytes without_possible = Play(recomputed).first;
    HoldInputs({possible, kept.end()}, &recomputed);
    const auto [peak, event] = Play(std::move(recomputed));
    found.peak = peak;
    found.offload_peak = Play(std::move(offloaded)).first;
    found.leaves = left > peak / kNoticed;
    found.at_least =
        found.at_least || found.leaves || peak - without_possible > peak / kNoticed || IsInForward(chosen, event);
    return found;
  }

  // What checkpoints keep behind where it was freed.
  void HoldInputs(const std::vector<KeptInput>& kept, std::vector<LiveChange>* changes) const {
    for (const KeptInput& input : kept) {
      const Allocation& allocation = facts_.device.allocations[input.block];
      if (allocation.free_event >= input.until) continue;
      const auto bytes = static_cast<std::int64_t>(allocation.bytes);
      changes->push_back({allocation.free_event + std::uint64_t{1}, bytes, 0});
      changes->push_back({input.until, -bytes, 0});
    }
  }

  // The peak, and where it is.
  [[nodiscard]] std::pair<Bytes, std::uint64_t> Play(std::vector<LiveChange> changes) const {
    std::stable_sort(changes.begin(), changes.end(),
                     [](const LiveChange& a, const LiveChange& b) { return a.event < b.event; });
    std::int64_t peak = 0;
    std::uint64_t peak_event = 0;
    const auto consider = [&](std::int64_t bytes, std::uint64_t event) {
      if (bytes <= peak) return;
      peak = bytes;
      peak_event = event;
    };
    std::int64_t live = 0;
    std::int64_t added = 0;
    auto next = changes.begin();
    for (const LiveStep& step : curve_) {
      for (; next != changes.end() && next->event <= step.event; ++next) {
        added += next->lasting;
        consider(live + added + next->at_once, next->event);
      }
      live = step.live;
      consider(live + added, step.event);
    }
    return {static_cast<Bytes>(peak), peak_event};
  }

  [[nodiscard]] bool IsInForward(const std::vector<std::size_t>& chosen, std::uint64_t event) const {
    return std::any_of(chosen.begin(), chosen.end(), [&](std::size_t i) {
      return visits_[i].forward_begin <= event && event < visits_[i].forward_end;
    });
  }

  const DeviceFacts& facts_;
  const Holdings holdings_;
  const std::uint64_t peak_event_;
  const std::vector<LayerVisit> visits_;
  const LayerInputs inputs_;
  std::vector<Holding> held_;  // by visit
  std::vector<LiveStep> curve_;
};

}  // namespace

std::vector<Recomputation> FindRecomputations(const DeviceFacts& facts, std::uint64_t peak_event,
                                              std::size_t most_patterns, std::size_t most_layers) {
  if (facts.layers.names().size() < 2) return {};
  return RecomputationFinder(facts, peak_event).Find(most_patterns, most_layers);
}

}  // namespace stalloc::planner
