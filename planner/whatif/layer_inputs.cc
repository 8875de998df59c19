#include "planner/whatif/layer_inputs.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string_view>

#include "absl/container/flat_hash_map.h"

namespace stalloc::planner {
namespace {

constexpr std::ptrdiff_t kMostOpen = 64;  // calls of one layer at once, on as many threads

}  // namespace

LayerInputs::LayerInputs(const DeviceFacts& facts, const std::vector<LayerVisit>& visits)
    : facts_(facts), visits_(visits), traced_(visits.size()), going_(visits.size()) {
  FindTraced();
  FindGoing();
  FindRoots();
}

bool LayerInputs::IsPassing(std::uint32_t block) const {
  const Allocation& allocation = facts_.device.allocations[block];
  return allocation.freed() && !allocation.outside && allocation.role == TensorRole::kNone;
}

void LayerInputs::FindTraced() {
  absl::flat_hash_map<std::string_view, std::vector<std::size_t>> visits_of;
  std::map<std::uint32_t, std::size_t> made_by;  // visits that have put a block into what they were called with
  for (std::size_t i = 0; i < visits_.size(); ++i) visits_of[facts_.layers.names()[visits_[i].name]].push_back(i);
  for (const LayerInput& input : facts_.device.layer_inputs) {
    const auto found = visits_of.find(facts_.names.Text(input.layer));
    if (found == visits_of.end() || !IsPassing(input.allocation)) continue;
    for (const std::size_t visit : OpenAt(found->second, input.event)) TakeTraced(input.allocation, visit, &made_by);
  }
  for (std::vector<std::uint32_t>& blocks : traced_) {
    std::erase_if(blocks, [&](std::uint32_t block) { return made_by.contains(block); });
  }
  FindStored(made_by);
}

// The open visits of a layer. With several threads more than one may be open, and whose call it is is unknown.
std::vector<std::size_t> LayerInputs::OpenAt(const std::vector<std::size_t>& visits, std::uint64_t event) const {
  std::vector<std::size_t> open;
  const auto after = std::lower_bound(visits.begin(), visits.end(), event, [&](std::size_t visit, std::uint64_t at) {
    return visits_[visit].forward_begin < at;
  });
  const auto least = after - std::min<std::ptrdiff_t>(after - visits.begin(), kMostOpen);
  std::copy_if(least, after, std::back_inserter(open),
               [&](std::size_t visit) { return event <= visits_[visit].forward_end; });
  return open;
}

void LayerInputs::TakeTraced(std::uint32_t block, std::size_t visit, std::map<std::uint32_t, std::size_t>* made_by) {
  if (facts_.device.allocations[block].event < visits_[visit].forward_begin) {
    traced_[visit].push_back(block);
  } else if (visits_[visit].inputs == kLayerCachesTold) {
    // For several the outermost one: visits are ascending, outer ones first.
    const auto known = made_by->try_emplace(block, visit).first;
    known->second = std::min(known->second, visit);
  }
}

// One that goes in the backward pass is needed there; else the layer's own passes alone may need it, in one of which it
// would go.
void LayerInputs::FindStored(const std::map<std::uint32_t, std::size_t>& made_by) {
  for (const auto& [block, index] : made_by) {
    const LayerVisit& visit = visits_[index];
    const std::uint64_t freed = facts_.device.allocations[block].free_event;
    if (freed > visit.backward_end) {
      stored_.push_back({block, visit.backward_end});
    } else if (freed < visit.backward_begin) {
      stored_.push_back({block, visit.forward_end});
    }
  }
}

void LayerInputs::FindGoing() {
  absl::flat_hash_map<std::uint32_t, std::vector<std::size_t>> called_with;
  for (std::size_t i = 0; i < visits_.size(); ++i) {
    for (const std::uint32_t block : traced_[i]) called_with[block].push_back(i);
  }
  const auto is_inside = [&](std::size_t inner, std::size_t outer) {
    return visits_[outer].forward_begin <= visits_[inner].forward_begin &&
           visits_[inner].forward_end <= visits_[outer].forward_end;
  };
  for (std::size_t i = 0; i < visits_.size(); ++i) {
    std::copy_if(traced_[i].begin(), traced_[i].end(), std::back_inserter(going_[i]), [&](std::uint32_t block) {
      const std::uint64_t freed = facts_.device.allocations[block].free_event;
      const std::vector<std::size_t>& others = called_with[block];
      return visits_[i].backward_begin <= freed && freed <= visits_[i].backward_end &&
             std::all_of(others.begin(), others.end(),
                         [&](std::size_t other) { return is_inside(other, i) || is_inside(i, other); });
    });
    std::sort(going_[i].begin(), going_[i].end());
    going_[i].erase(std::unique(going_[i].begin(), going_[i].end()), going_[i].end());
  }
}

void LayerInputs::FindRoots() {
  const std::vector<Allocation>& all = facts_.device.allocations;
  const auto at = [&](std::uint64_t event) {
    const auto found = std::lower_bound(all.begin(), all.end(), event,
                                        [](const Allocation& one, std::uint64_t other) { return one.event < other; });
    return static_cast<std::size_t>(found - all.begin());
  };
  for (const LayerVisit& visit : visits_) {
    if (!root_end_.empty() && visit.forward_begin < root_end_.back()) continue;
    in_root_.push_back({at(visit.forward_begin), at(visit.forward_end)});
    root_end_.push_back(visit.forward_end);
  }
}

std::vector<KeptInput> LayerInputs::KeptBy(const std::vector<std::size_t>& chosen) const {
  std::vector<KeptInput> kept;
  std::vector<std::size_t> not_traced;
  for (const std::size_t visit : chosen) {
    if (visits_[visit].inputs == 0) not_traced.push_back(visit);
    for (const std::uint32_t block : traced_[visit]) kept.push_back({block, visits_[visit].backward_end, true});
  }
  if (!not_traced.empty()) AddPossible(not_traced, &kept);
  std::sort(kept.begin(), kept.end(), [](const KeptInput& a, const KeptInput& b) {
    return a.block != b.block ? a.block < b.block : a.until > b.until;
  });
  const auto end =
      std::unique(kept.begin(), kept.end(), [](const KeptInput& a, const KeptInput& b) { return a.block == b.block; });
  kept.erase(end, kept.end());
  return kept;
}

void LayerInputs::AddPossible(const std::vector<std::size_t>& chosen, std::vector<KeptInput>* kept) const {
  for (std::size_t root = 0; root < root_end_.size(); ++root) {
    for (std::size_t i = in_root_[root].first; i < in_root_[root].second; ++i) {
      const Allocation& block = facts_.device.allocations[i];
      if (!IsPassing(static_cast<std::uint32_t>(i)) || block.free_event >= root_end_[root]) continue;
      auto next =
          std::lower_bound(chosen.begin(), chosen.end(), std::uint64_t{block.event},
                           [&](std::size_t v, std::uint64_t event) { return visits_[v].forward_begin < event; });
      std::uint64_t until = 0;
      for (; next != chosen.end() && visits_[*next].forward_begin < block.free_event; ++next) {
        if (visits_[*next].forward_end <= block.free_event) until = std::max(until, visits_[*next].backward_end);
      }
      if (until > 0) kept->push_back({static_cast<std::uint32_t>(i), until, false});
    }
  }
}

}  // namespace stalloc::planner
