#include "planner/whatif/fit_search.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "planner/whatif/median.h"

namespace stalloc::planner {
namespace {

constexpr std::size_t kMostGroups = 24;
constexpr int kRounds = 6;  // in which graphs are made to fit
// The host time of torch's checkpoint in addition to the forward pass that it runs again: 0.2 ms with torch 2.15 on one
// core of 2025. It makes a layer as a whole worth more than its parts one by one.
constexpr std::int64_t kCheckpointNs = 200000;
constexpr int kTimedDepth = 3;  // of the last so many parts of a path one is a number: train/marking/device_times.py
constexpr Bytes kHostChunk = Bytes{512} << 20;  // the pool grows by it at most, and doubles before: host_pool.py
constexpr double kLeastAway = 0.002;            // of the peak: kinds of layers that hold less are no choice

// Whether a trace at a GPU's time waits for the GPU at the layer: what lies deeper has the host's time.
bool IsTimed(absl::string_view name) {
  const std::vector<absl::string_view> parts = absl::StrSplit(name, '.');
  return std::any_of(parts.rbegin(), parts.rbegin() + std::min<std::ptrdiff_t>(kTimedDepth, std::ssize(parts)),
                     [](absl::string_view part) { return std::all_of(part.begin(), part.end(), absl::ascii_isdigit); });
}

}  // namespace

// A choice, with what it does, as it is changed.
class FitSearch::Attempt {
 public:
  Attempt(const FitSearch& search, const std::vector<Bytes>& sizes, double scale)
      : search_(search), sizes_(sizes), scale_(scale), choice_(search.Nothing()), peak_(Play(choice_)) {}

  [[nodiscard]] EditedPeak Play(const UnitChoice& choice) const {
    return search_.player_.Play(search_.units_.EditOf(choice), sizes_);
  }
  void Take(const UnitChoice& choice, const EditedPeak& peak) {
    choice_ = choice;
    peak_ = peak;
  }
  // Whether the unit is chosen, or one inside or around it is.
  [[nodiscard]] bool IsTaken(std::size_t unit) const {
    const std::vector<LayerUnit>& all = search_.units_.units();
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (choice_.uses[i] == UnitUse::kAsItWas) continue;
      if (IsInside(all[i].name, all[unit].name) || IsInside(all[unit].name, all[i].name)) return true;
    }
    return false;
  }
  // Whether the host has memory for it; if not, that is noted.
  [[nodiscard]] bool HasHostMemory(const UnitChoice& choice) {
    const bool has = search_.HostBytesOf(choice, scale_) <= search_.costs_.host_bytes;
    host_bound_ = host_bound_ || !has;
    return has;
  }
  [[nodiscard]] bool host_bound() const { return host_bound_; }
  [[nodiscard]] std::int64_t cost() const { return search_.CostOf(choice_, scale_); }
  [[nodiscard]] const UnitChoice& choice() const { return choice_; }
  [[nodiscard]] const EditedPeak& peak() const { return peak_; }
  [[nodiscard]] double scale() const { return scale_; }

 private:
  const FitSearch& search_;
  const std::vector<Bytes>& sizes_;
  const double scale_;
  UnitChoice choice_;
  EditedPeak peak_;
  bool host_bound_ = false;
};

FitSearch::FitSearch(const DeviceFacts& facts, const LayerUnits& units, const EditPlayer& player, const FitCosts& costs)
    : facts_(facts), units_(units), player_(player), costs_(costs), groups_(GroupUnits()) {}

UnitChoice FitSearch::Nothing() const {
  UnitChoice choice = units_.Nothing();
  choice.accumulated = costs_.accumulated;
  choice.single = costs_.single;
  return choice;
}

std::vector<FitSearch::Group> FitSearch::GroupUnits() const {
  std::map<std::string, Group> by_pattern;
  std::map<std::string, Bytes> away;
  const std::vector<LayerUnit>& units = units_.units();
  for (std::size_t i = 0; i < units.size(); ++i) {
    // A model as a whole is back where the peak is; and what has no path in one cannot be named to a program.
    if (units[i].leaves || units[i].name.find('.') == std::string::npos) continue;
    if (facts_.device.device >= 0 && !IsTimed(units[i].name)) continue;
    Group& group = by_pattern[units[i].pattern];
    group.name = units[i].pattern;
    group.units.push_back(i);
    away[units[i].pattern] += units[i].away;
  }
  const double least = kLeastAway * static_cast<double>(PeakLiveBytes(facts_.device));
  std::vector<Group> groups;
  for (auto& [pattern, group] : by_pattern) {
    if (static_cast<double>(away[pattern]) >= least) groups.push_back(std::move(group));
  }
  std::stable_sort(groups.begin(), groups.end(),
                   [&](const Group& a, const Group& b) { return away[a.name] > away[b.name]; });
  groups.resize(std::min(groups.size(), kMostGroups));
  if (!costs_.offload) return groups;
  const std::size_t recomputed = groups.size();
  for (std::size_t i = 0; i < recomputed; ++i) groups.push_back(Offloading(groups[i]));
  return groups;
}

// The same units, offloaded: each as far after the one before it as copying it takes, then those between.
FitSearch::Group FitSearch::Offloading(Group group) const {
  group.use = UnitUse::kOffloaded;
  UnitChoice all = units_.Nothing();
  for (const std::size_t unit : group.units) all.uses[unit] = UnitUse::kOffloaded;
  std::vector<OffloadTrip> trips = units_.TripsOf(all);
  if (trips.size() < 2) return group;
  std::sort(trips.begin(), trips.end(),
            [](const OffloadTrip& a, const OffloadTrip& b) { return a.saved_ns < b.saved_ns; });
  const auto apart =
      static_cast<double>(trips.back().saved_ns - trips.front().saved_ns) / static_cast<double>(trips.size() - 1);
  double copy = 0;
  for (const OffloadTrip& trip : trips)
    copy = std::max(copy, static_cast<double>(trip.bytes) / costs_.bus_bytes_per_ns);
  const auto most = static_cast<double>(group.units.size());
  const auto stride = static_cast<std::size_t>(std::clamp(std::ceil(copy / std::max(apart, 1.0)), 1.0, most));
  std::vector<std::size_t> ordered;
  for (std::size_t first = 0; first < stride; ++first) {
    for (std::size_t i = first; i < group.units.size(); i += stride) ordered.push_back(group.units[i]);
  }
  group.units = std::move(ordered);
  return group;
}

std::int64_t FitSearch::CostOfUnit(std::size_t unit) const {
  const LayerUnit& one = units_.units()[unit];
  return one.forward_ns + one.runs * kCheckpointNs;
}

std::int64_t FitSearch::CostOf(const UnitChoice& choice, double scale) const {
  std::int64_t growing = 0;
  std::int64_t cost = 0;
  bool offloaded = false;
  for (std::size_t i = 0; i < choice.uses.size(); ++i) {
    offloaded = offloaded || choice.uses[i] == UnitUse::kOffloaded;
    if (choice.uses[i] != UnitUse::kRecomputed) continue;
    growing += units_.units()[i].forward_ns;
    cost += units_.units()[i].runs * kCheckpointNs;
  }
  if (offloaded) growing += StallOf(units_.TripsOf(choice), costs_.bus_bytes_per_ns);
  cost += static_cast<std::int64_t>(scale * static_cast<double>(growing));
  if (choice.state_offloaded) {
    cost += static_cast<std::int64_t>(2 * static_cast<double>(units_.state_bytes()) / costs_.bus_bytes_per_ns);
  }
  return cost;
}

Bytes FitSearch::HostBytesOf(const UnitChoice& choice, double scale) const {
  Bytes bytes = choice.state_offloaded ? units_.pinned_state_bytes() : 0;
  if (std::find(choice.uses.begin(), choice.uses.end(), UnitUse::kOffloaded) == choice.uses.end()) return bytes;
  const auto most = static_cast<Bytes>(scale * static_cast<double>(MostOnHost(units_.TripsOf(choice))));
  return bytes + most + std::min(most, kHostChunk);
}

void FitSearch::Greedy(Bytes budget, Attempt* attempt) const {
  while (attempt->peak().live > budget) {
    const double excess = static_cast<double>(attempt->peak().live - budget);
    double best = 0;
    UnitChoice best_choice;
    EditedPeak best_peak;
    const auto consider = [&](UnitChoice choice, std::int64_t cost) {
      if (!attempt->HasHostMemory(choice)) return;
      const EditedPeak peak = attempt->Play(choice);
      if (peak.live >= attempt->peak().live) return;
      const double drop = std::min(excess, static_cast<double>(attempt->peak().live - peak.live));
      const double worth = drop / static_cast<double>(std::max<std::int64_t>(cost, 1));
      if (worth <= best) return;
      best = worth;
      best_choice = std::move(choice);
      best_peak = peak;
    };
    for (const Group& group : groups_) {
      const auto next =
          std::find_if(group.units.begin(), group.units.end(), [&](std::size_t i) { return !attempt->IsTaken(i); });
      if (next == group.units.end()) continue;
      UnitChoice choice = attempt->choice();
      choice.uses[*next] = group.use;
      const std::int64_t cost =
          group.use == UnitUse::kRecomputed ? CostOfUnit(*next) : CostOf(choice, attempt->scale()) - attempt->cost();
      consider(std::move(choice), cost);
    }
    if (costs_.offload && !attempt->choice().state_offloaded && units_.state_bytes() > 0) {
      UnitChoice choice = attempt->choice();
      choice.state_offloaded = true;
      consider(choice, CostOf(choice, attempt->scale()) - attempt->cost());
    }
    if (best == 0) return;
    attempt->Take(best_choice, best_peak);
  }
}

// As few of the group as it takes; all of them where that is not enough.
void FitSearch::Uniform(const Group& group, Bytes budget, Attempt* attempt) const {
  const auto first = [&](std::size_t count) {
    UnitChoice choice = Nothing();
    for (std::size_t i = 0; i < count; ++i) choice.uses[group.units[i]] = group.use;
    return choice;
  };
  std::size_t least = 1;
  std::size_t most = group.units.size();
  while (least < most) {
    const std::size_t middle = (least + most) / 2;
    if (attempt->Play(first(middle)).live <= budget) {
      most = middle;
    } else {
      least = middle + 1;
    }
  }
  const UnitChoice choice = first(least);
  attempt->Take(choice, attempt->Play(choice));
}

void FitSearch::GiveBack(Bytes budget, Attempt* attempt) const {
  for (std::size_t i = attempt->choice().uses.size(); i-- > 0;) {
    if (attempt->choice().uses[i] == UnitUse::kAsItWas) continue;
    UnitChoice choice = attempt->choice();
    choice.uses[i] = UnitUse::kAsItWas;
    const EditedPeak peak = attempt->Play(choice);
    if (peak.live <= budget) attempt->Take(choice, peak);
  }
}

FitResult FitSearch::Find(Bytes budget, const std::vector<BlockPart>& parts, double scale) const {
  const std::vector<Bytes> sizes = SizesAt(parts, scale);
  FitResult best;
  bool host_bound = false;
  const auto consider = [&](Attempt attempt) {
    const bool has_memory = attempt.HasHostMemory(attempt.choice());
    host_bound = host_bound || attempt.host_bound();
    if (!has_memory) return;
    const bool fits = attempt.peak().live <= budget;
    if (fits) GiveBack(budget, &attempt);
    const std::int64_t cost = attempt.cost();
    const bool better = best.choice.uses.empty() || (fits && !best.fits) ||
                        (fits == best.fits && (fits ? cost < best.cost_ns : attempt.peak().live < best.peak.live));
    if (!better) return;
    best.choice = attempt.choice();
    best.peak = attempt.peak();
    best.fits = fits;
    best.cost_ns = cost;
  };
  Attempt attempt(*this, sizes, scale);
  Greedy(budget, &attempt);
  consider(attempt);
  if (attempt.cost() > 0) {
    for (const Group& group : groups_) {
      Attempt uniform(*this, sizes, scale);
      Uniform(group, budget, &uniform);
      consider(uniform);
    }
  }
  best.host_bytes = HostBytesOf(best.choice, scale);
  best.host_bound = host_bound;
  best.bound = facts_.roles[facts_.role_of[facts_.phases.At(best.peak.event)]];
  return best;
}

FitResult FitSearch::FindWithGraphs(Bytes budget, Bytes graphs_budget, const std::vector<BlockPart>& parts,
                                    double scale) const {
  FitResult found;
  for (int round = 0; round < kRounds; ++round) {
    found = Find(budget, parts, scale);
    const Bytes graphs = found.peak.pool + found.peak.outside_pool;
    if (graphs_budget == 0 || graphs <= graphs_budget || !found.fits) return found;
    const Bytes beyond = graphs - graphs_budget;
    budget = std::min(budget, found.peak.live);
    budget -= std::min(budget, beyond);
  }
  found.fits = false;
  return found;
}

std::vector<FitCandidate> FitSearch::Candidates(const std::vector<BlockPart>& parts, double scale) const {
  const std::vector<Bytes> sizes = SizesAt(parts, scale);
  std::vector<FitCandidate> found;
  for (const Group& group : groups_) {
    FitCandidate candidate;
    candidate.layers = group.name;
    candidate.use = group.use;
    candidate.count = group.units.size();
    UnitChoice choice = Nothing();
    for (const std::size_t unit : group.units) {
      choice.uses[unit] = group.use;
      candidate.away += units_.units()[unit].away;
      candidate.at_least = candidate.at_least || units_.units()[unit].at_least;
    }
    candidate.peak = player_.Play(units_.EditOf(choice), sizes).live;
    candidate.cost_ns = CostOf(choice, scale);
    found.push_back(std::move(candidate));
  }
  if (costs_.offload && units_.state_bytes() > 0) {
    UnitChoice choice = Nothing();
    choice.state_offloaded = true;
    FitCandidate candidate{"optimizer state", UnitUse::kOffloaded, 1, units_.state_bytes(), 0, 0, false};
    candidate.peak = player_.Play(units_.EditOf(choice), sizes).live;
    candidate.cost_ns = CostOf(choice, scale);
    found.push_back(std::move(candidate));
  }
  return found;
}

StepTimes FindStepTimes(const DeviceFacts& facts, const Segmentation& segmentation) {
  const auto time_of = [&](std::uint64_t event) {
    return facts.clock.time_ns[std::min<std::size_t>(event, facts.clock.time_ns.size() - 1)];
  };
  const std::vector<PhaseSpan>& spans = facts.phases.spans();
  std::vector<std::int64_t> steps;
  std::vector<std::int64_t> passes;
  // What follows the last step of the optimizer may count as an iteration, and is none.
  std::size_t most = 0;
  for (std::size_t i = 1; i < facts.device.segments.size(); ++i) {
    most = std::max(most, facts.device.segments[i].allocations.size());
  }
  for (std::size_t i = 1; i < segmentation.segments.size(); ++i) {
    if (facts.device.segments[i].allocations.size() * 2 < most) continue;
    if (i == 1 && segmentation.segments.size() > 2) continue;  // warms up
    const Segment& segment = segmentation.segments[i];
    std::int64_t pass = 0;
    std::int64_t optimizer = 0;
    for (std::size_t s = 0; s < spans.size(); ++s) {
      if (spans[s].segment != i) continue;
      const std::uint64_t end = s + 1 < spans.size() ? spans[s + 1].begin_event : facts.events;
      const std::int64_t ns = time_of(end) - time_of(spans[s].begin_event);
      if (spans[s].kind == PhaseKind::kOptimizer) optimizer += ns;
      if (spans[s].kind == PhaseKind::kForward || spans[s].kind == PhaseKind::kBackward ||
          spans[s].kind == PhaseKind::kForwardBackward) {
        pass += ns;
      }
    }
    const std::int64_t step = time_of(segment.end_event) - time_of(segment.begin_event);
    steps.push_back(step);
    passes.push_back(facts.phases.knows_microbatches() ? pass : step - optimizer);
  }
  return {MedianOf(steps), MedianOf(passes)};
}

}  // namespace stalloc::planner
