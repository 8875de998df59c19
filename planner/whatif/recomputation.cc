#include "planner/whatif/recomputation.h"

#include <map>

#include "planner/analysis/sweep.h"
#include "planner/facts/largest_keys.h"
#include "planner/whatif/layer_units.h"

namespace stalloc::planner {
namespace {

constexpr Bytes kNoticedShare = 1000;  // what is a lower share of the peak than one in so many makes no difference

class RecomputationFinder {
 public:
  RecomputationFinder(const DeviceFacts& facts, const EditPlayer& player)
      : facts_(facts),
        player_(player),
        units_(facts),
        sizes_(TracedSizes(facts)),
        peak_event_(FindPeakMoment(facts.device).event) {}

  [[nodiscard]] std::vector<Recomputation> Find(std::size_t most_patterns, std::size_t most_layers) const {
    std::map<std::string, std::vector<std::size_t>> units_of;
    std::map<std::string, Bytes> singles;
    std::map<std::string, Bytes> patterns;
    for (std::size_t i = 0; i < units_.units().size(); ++i) {
      const LayerUnit& unit = units_.units()[i];
      const Bytes away = units_.AwayAt(i, peak_event_);
      units_of[unit.name].push_back(i);
      if (away > 0) singles[unit.name] += away;
      if (unit.pattern == unit.name) continue;
      units_of[unit.pattern].push_back(i);
      if (away > 0) patterns[unit.pattern] += away;
    }
    std::vector<Recomputation> found;
    for (const std::string& name : LargestKeys(patterns, most_patterns)) found.push_back(Of(name, units_of[name]));
    for (const std::string& name : LargestKeys(singles, most_layers)) found.push_back(Of(name, units_of[name]));
    return found;
  }

 private:
  [[nodiscard]] Recomputation Of(const std::string& layers, const std::vector<std::size_t>& chosen) const {
    Recomputation found;
    found.layers = layers;
    UnitChoice choice = units_.Nothing();
    UnitChoice offloaded = units_.Nothing();
    const std::uint32_t segment = facts_.phases.spans()[facts_.phases.At(peak_event_)].segment;
    Bytes left = 0;
    bool in_forward = false;
    for (const std::size_t i : chosen) {
      choice.uses[i] = UnitUse::kRecomputed;
      offloaded.uses[i] = UnitUse::kOffloaded;
      found.at_peak += units_.AwayAt(i, peak_event_);
      found.moved += units_.AwayIn(i, segment);
      found.at_least = found.at_least || units_.units()[i].at_least;
      left += units_.units()[i].left;
    }
    const EditedPeak peak = player_.Play(units_.EditOf(choice), sizes_);
    const Bytes traced = player_.Play(units_.EditOf(choice, Inputs::kTraced), sizes_).live;
    for (const std::size_t i : chosen) in_forward = in_forward || units_.IsInForward(i, peak.event);
    found.peak = peak.live;
    found.offload_peak = player_.Play(units_.EditOf(offloaded), sizes_).live;
    found.leaves = left > found.peak / kNoticedShare;
    found.at_least = found.at_least || found.leaves || found.peak - traced > found.peak / kNoticedShare || in_forward;
    return found;
  }

  const DeviceFacts& facts_;
  const EditPlayer& player_;
  const LayerUnits units_;
  const std::vector<Bytes> sizes_;
  const std::uint64_t peak_event_;
};

}  // namespace

std::vector<Recomputation> FindRecomputations(const DeviceFacts& facts, const EditPlayer& player,
                                              std::size_t most_patterns, std::size_t most_layers) {
  if (facts.layers.names().size() < 2) return {};
  return RecomputationFinder(facts, player).Find(most_patterns, most_layers);
}

}  // namespace stalloc::planner
