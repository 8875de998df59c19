#include "allocator/engine/turns.h"

#include <algorithm>
#include <iterator>
#include <tuple>
#include <utility>

namespace stalloc {

Turns::Turns(const DevicePlan& plan)
    : turns_(plan.turns), period_(static_cast<std::uint32_t>(plan.cycle.size()) / plan.turns) {
  if (empty()) return;
  crossing_.resize(plan.cycle.size());
  FindCrossing(plan);
  KeepWhatDiffers();
}

void Turns::FindCrossing(const DevicePlan& plan) {
  for (std::size_t script = 0; script < plan.cycle.size(); ++script) {
    const std::vector<Entry>& entries = plan.cycle[script].entries;
    for (std::size_t e = 0; e < entries.size(); ++e) {
      if (entries[e].slot == kNoSlot) continue;
      const Slot& slot = plan.slots[entries[e].slot];
      const Place place{static_cast<std::uint32_t>(slot.offset / kBlockAlignment),
                        static_cast<std::uint32_t>(slot.capacity / kBlockAlignment)};
      // From the entry to where the next script begins, and the one after it.
      std::uint64_t ahead = entries.size() - e;
      for (std::size_t next = 1; next <= plan.cycle.size() && ahead < entries[e].expected_life; ++next) {
        const std::size_t at = (script + next) % plan.cycle.size();
        crossing_[at].push_back(place);
        ahead += plan.cycle[at].entries.size();
      }
    }
  }
}

// What lies in the same place in every turn tells nothing.
void Turns::KeepWhatDiffers() {
  const auto by_place = [](const Place& a, const Place& b) {
    return std::tie(a.granule, a.granules) < std::tie(b.granule, b.granules);
  };
  for (std::vector<Place>& places : crossing_) std::sort(places.begin(), places.end(), by_place);
  std::vector<std::vector<Place>> kept(crossing_.size());
  for (std::size_t script = 0; script < crossing_.size(); ++script) {
    const auto in_all = [&](const Place& place) {
      for (std::size_t other = script % period_; other < crossing_.size(); other += period_) {
        if (!std::binary_search(crossing_[other].begin(), crossing_[other].end(), place, by_place)) return false;
      }
      return true;
    };
    std::copy_if(crossing_[script].begin(), crossing_[script].end(), std::back_inserter(kept[script]),
                 [&](const Place& place) { return !in_all(place); });
    std::stable_sort(kept[script].begin(), kept[script].end(),
                     [](const Place& a, const Place& b) { return a.granules > b.granules; });
    kept[script].resize(std::min(kept[script].size(), kMostPlaces));
  }
  crossing_ = std::move(kept);
}

}  // namespace stalloc
