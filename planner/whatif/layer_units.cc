#include "planner/whatif/layer_units.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <map>
#include <utility>

#include "planner/facts/layer_pattern.h"
#include "planner/whatif/median.h"

namespace stalloc::planner {
namespace {

constexpr Bytes kNoticed = 1000;         // what is a lower share of the peak than one in so many makes no difference
constexpr Bytes kGeneratorState = 5056;  // torch's CPU generator, which a checkpoint keeps

// For a unit's forward passes in one iteration.
struct SegmentSums {
  Bytes away = 0;
  std::int64_t ns = 0;
  std::int64_t runs = 0;
};

// Up to where checkpoints keep a block; 0: none does.
std::uint64_t NeededUntil(std::uint32_t block, const std::vector<KeptInput>& kept) {
  const auto found = std::lower_bound(kept.begin(), kept.end(), block,
                                      [](const KeptInput& one, std::uint32_t other) { return one.block < other; });
  return found == kept.end() || found->block != block ? 0 : found->until;
}

}  // namespace

bool IsInside(const std::string& inner, const std::string& outer) {
  return inner.size() > outer.size() ? inner.compare(0, outer.size(), outer) == 0 && inner[outer.size()] == '.'
                                     : inner == outer;
}

LayerUnits::LayerUnits(const DeviceFacts& facts)
    : facts_(facts),
      visits_(FindLayerVisits(facts.layers, facts.phases)),
      noticed_bytes_(PeakLiveBytes(facts.device) / kNoticed),
      inputs_(facts, visits_),
      places_(FindOffloadPlaces(facts.layers.names(), visits_)) {
  std::map<std::uint32_t, std::size_t> count;  // by name
  for (const LayerVisit& visit : visits_) ++count[visit.name];
  std::map<std::uint32_t, bool> seen;
  for (const LayerVisit& visit : visits_) {
    const bool is_first = !std::exchange(seen[visit.name], true);
    holdings_.push_back(HoldingOf(visit, is_first && count[visit.name] > 1));
  }
  FindUnits();
  FindState();
  FindFollowing();
}

std::size_t LayerUnits::Find(const std::string& name) const {
  const auto found =
      std::find_if(units_.begin(), units_.end(), [&](const LayerUnit& unit) { return unit.name == name; });
  return static_cast<std::size_t>(found - units_.begin());
}

std::pair<std::size_t, std::size_t> LayerUnits::BlocksIn(std::uint64_t begin_event, std::uint64_t end_event) const {
  const std::vector<Allocation>& all = facts_.device.allocations;
  const auto at = [&](std::uint64_t event) {
    const auto found = std::lower_bound(all.begin(), all.end(), event,
                                        [](const Allocation& one, std::uint64_t other) { return one.event < other; });
    return static_cast<std::size_t>(found - all.begin());
  };
  return {at(begin_event), at(end_event)};
}

// What a first call takes for good is a library's, as the workspace of cuBLAS.
LayerUnits::Holding LayerUnits::HoldingOf(const LayerVisit& visit, bool warms_up) const {
  Holding holding;
  holding.kept_known = visit.kept_bytes != kKeptUnknown;
  holding.warms_up = warms_up;
  const auto [begin, end] = BlocksIn(visit.forward_begin, visit.forward_end);
  for (std::size_t i = begin; i < end; ++i) {
    const Allocation& allocation = facts_.device.allocations[i];
    if (allocation.outside || allocation.role != TensorRole::kNone || (warms_up && !allocation.freed())) continue;
    if (allocation.free_event > visit.backward_end) {
      holding.left_bytes += allocation.bytes;
      holding.all_left += allocation.bytes;
      holding.stored.push_back(static_cast<std::uint32_t>(i));
    }
    if (allocation.free_event < visit.backward_begin || allocation.free_event > visit.backward_end) continue;
    holding.away.push_back(static_cast<std::uint32_t>(i));
    holding.last_event = allocation.event;
  }
  LeaveOutputs(holding.kept_known ? static_cast<Bytes>(visit.kept_bytes) : 0, holding.kept_known, &holding.away);
  TakeStored(visit, &holding);
  for (const std::uint32_t block : holding.away) holding.away_bytes += facts_.device.allocations[block].bytes;
  return holding;
}

// What a layer of many leaves live is stored for later, but for the last block that it makes: that is its output.
void LayerUnits::TakeStored(const LayerVisit& visit, Holding* holding) const {
  const std::vector<Allocation>& all = facts_.device.allocations;
  const std::string& name = facts_.layers.names()[visit.name];
  const bool repeats = LayerPattern(name) != name;
  std::erase_if(holding->stored, [&](std::uint32_t block) {
    return !repeats || !all[block].freed() || all[block].event > holding->last_event;
  });
  for (const std::uint32_t block : holding->stored) {
    holding->left_bytes -= all[block].bytes;
    holding->away.push_back(block);
  }
  std::sort(holding->away.begin(), holding->away.end());
}

// Takes out what the layer gives to others and keeps itself: the last blocks of as many bytes; not known: the largest.
void LayerUnits::LeaveOutputs(Bytes kept, bool known, std::vector<std::uint32_t>* own) const {
  const std::vector<Allocation>& all = facts_.device.allocations;
  if (own->empty() || (known && kept == 0)) return;
  if (!known) {
    own->erase(std::max_element(own->begin(), own->end(),
                                [&](std::uint32_t a, std::uint32_t b) { return all[a].bytes < all[b].bytes; }));
    return;
  }
  const auto same = std::find_if(own->rbegin(), own->rend(), [&](std::uint32_t i) { return all[i].bytes == kept; });
  if (same != own->rend()) {
    own->erase(std::next(same).base());
    return;
  }
  for (Bytes left = kept; left > 0 && !own->empty();) {
    left -= std::min(left, all[own->back()].bytes);
    own->pop_back();
  }
}

void LayerUnits::FindUnits() {
  std::map<std::uint32_t, std::size_t> unit_of;
  std::vector<std::map<std::uint32_t, SegmentSums>> of_segment;  // by unit
  for (std::size_t i = 0; i < visits_.size(); ++i) {
    const auto [found, is_new] = unit_of.try_emplace(visits_[i].name, units_.size());
    if (is_new) {
      LayerUnit unit;
      unit.name = facts_.layers.names()[visits_[i].name];
      unit.pattern = LayerPattern(unit.name);
      units_.push_back(std::move(unit));
      of_segment.emplace_back();
    }
    LayerUnit& unit = units_[found->second];
    const Holding& holding = holdings_[i];
    unit.visits.push_back(i);
    unit.at_least = unit.at_least || !holding.kept_known;
    unit.stores = unit.stores || !holding.stored.empty();
    unit.leaves = unit.leaves || holding.left_bytes > noticed_bytes_;
    unit.left += holding.all_left;
    SegmentSums& sums = of_segment[found->second][SegmentOf(visits_[i])];
    ++sums.runs;
    sums.away += holding.away_bytes;
    sums.ns += facts_.clock.time_ns[visits_[i].forward_end] - facts_.clock.time_ns[visits_[i].forward_begin];
  }
  for (std::size_t i = 0; i < units_.size(); ++i) {
    std::vector<std::int64_t> times;
    units_[i].iteration_ns.resize(facts_.device.segments.size() - 1);
    for (const auto& [segment, sums] : of_segment[i]) {
      if (segment > 0) units_[i].iteration_ns[segment - 1] = sums.ns;
      units_[i].away = std::max(units_[i].away, sums.away);
      units_[i].runs = std::max(units_[i].runs, sums.runs);
      if (segment > 1 || of_segment[i].size() == 1) times.push_back(sums.ns);  // the first iteration warms up
    }
    units_[i].forward_ns = MedianOf(std::move(times));
  }
  std::erase_if(units_, [](const LayerUnit& unit) { return unit.away == 0; });
}

void LayerUnits::FindState() {
  for (std::uint32_t i = 0; i < facts_.blocks.size(); ++i) {
    if (facts_.blocks[i].memory_class != MemoryClass::kOptimizerState) continue;
    state_.push_back(i);
    state_bytes_ += facts_.device.allocations[i].bytes;
    pinned_state_bytes_ += std::bit_ceil(facts_.device.allocations[i].bytes);
  }
}

// Ascending.
std::vector<std::size_t> LayerUnits::VisitsOf(const UnitChoice& choice, UnitUse use) const {
  std::vector<std::size_t> visits;
  for (std::size_t i = 0; i < units_.size(); ++i) {
    if (choice.uses[i] != use) continue;
    std::copy_if(units_[i].visits.begin(), units_[i].visits.end(), std::back_inserter(visits),
                 [&](std::size_t visit) { return !choice.single || !IsFollowing(visits_[visit].forward_begin); });
  }
  std::sort(visits.begin(), visits.end());
  return visits;
}

std::uint32_t LayerUnits::SegmentOf(const LayerVisit& visit) const {
  return facts_.phases.spans()[facts_.phases.At(visit.forward_begin)].segment;
}

Bytes LayerUnits::AwayAt(std::size_t unit, std::uint64_t event) const {
  Bytes away = 0;
  for (const std::size_t i : units_[unit].visits) {
    if (visits_[i].forward_end <= event && event < visits_[i].backward_begin) away += holdings_[i].away_bytes;
  }
  return away;
}

Bytes LayerUnits::AwayIn(std::size_t unit, std::uint32_t segment) const {
  Bytes away = 0;
  for (const std::size_t i : units_[unit].visits) {
    if (SegmentOf(visits_[i]) == segment) away += holdings_[i].away_bytes;
  }
  return away;
}

bool LayerUnits::IsInForward(std::size_t unit, std::uint64_t event) const {
  return std::any_of(units_[unit].visits.begin(), units_[unit].visits.end(), [&](std::size_t i) {
    return visits_[i].forward_begin <= event && event < visits_[i].forward_end;
  });
}

RunEdit LayerUnits::EditOf(const UnitChoice& choice, Inputs inputs) const {
  RunEdit edit;
  const std::vector<std::size_t> recomputed = VisitsOf(choice, UnitUse::kRecomputed);
  std::vector<KeptInput> kept = inputs_.KeptBy(recomputed);
  if (inputs == Inputs::kTraced) std::erase_if(kept, [](const KeptInput& input) { return !input.traced; });
  for (const std::size_t visit : recomputed) Recompute(visit, kept, &edit);
  for (const std::size_t visit : VisitsOf(choice, UnitUse::kOffloaded)) Offload(visit, kept, &edit);
  KeepInputs(kept, &edit);
  if (!recomputed.empty()) LeaveCachesOut(&edit);
  if (choice.state_offloaded) OffloadState(&edit);
  if (choice.accumulated) Accumulate(&edit);
  if (choice.single) DropFollowing(&edit);
  edit.Sort();
  return edit;
}

void LayerUnits::Recompute(std::size_t index, const std::vector<KeptInput>& kept, RunEdit* edit) const {
  const LayerVisit& visit = visits_[index];
  const Holding& holding = holdings_[index];
  for (const std::uint32_t block : holding.away) {
    edit->actions.push_back({std::max(visit.forward_end, NeededUntil(block, kept)), block, false});
  }
  if (facts_.device.device < 0) {
    const auto state = static_cast<std::uint32_t>(facts_.device.allocations.size() + edit->extras.size());
    edit->extras.push_back({kNone, kGeneratorState});
    edit->actions.push_back({visit.forward_begin, state, true});
    edit->actions.push_back({visit.backward_end, state, false});
  }
  if (!holding.away.empty()) RunAgain(visit, holding, edit);
  for (const std::uint32_t block : holding.stored) edit->actions.push_back({visit.backward_end, block, false});
}

// What the forward pass made comes in the same order, up to the last block that the backward pass needs. What is not
// away is there besides, up to where the forward pass freed it, or to the end of this.
void LayerUnits::RunAgain(const LayerVisit& visit, const Holding& holding, RunEdit* edit) const {
  const std::vector<Allocation>& all = facts_.device.allocations;
  const auto [begin, end] = BlocksIn(visit.forward_begin, holding.last_event + 1);
  std::vector<std::pair<std::uint32_t, std::uint32_t>> gone;  // when, extra block
  std::vector<EditAction> again;
  for (std::size_t i = begin; i < end; ++i) {
    if (all[i].outside || all[i].role != TensorRole::kNone || (holding.warms_up && !all[i].freed())) continue;
    auto block = static_cast<std::uint32_t>(i);
    if (!std::binary_search(holding.away.begin(), holding.away.end(), block)) {
      block = static_cast<std::uint32_t>(all.size() + edit->extras.size());
      edit->extras.push_back({static_cast<std::uint32_t>(i), 0});
      gone.push_back({all[i].free_event, block});
    }
    again.push_back({all[i].event, block, true});
  }
  for (const auto& [event, block] : gone)
    again.push_back({std::min<std::uint64_t>(event, holding.last_event + 1), block, false});
  std::stable_sort(again.begin(), again.end(),
                   [](const EditAction& a, const EditAction& b) { return a.event < b.event; });
  for (const EditAction& action : again) edit->actions.push_back({visit.backward_begin, action.block, action.makes});
}

std::vector<std::uint32_t> LayerUnits::OffloadedOf(std::size_t visit) const {
  std::vector<std::uint32_t> blocks = holdings_[visit].away;
  const std::vector<std::uint32_t>& inputs = inputs_.GoingWith(visit);
  blocks.insert(blocks.end(), inputs.begin(), inputs.end());
  return blocks;
}

void LayerUnits::Offload(std::size_t index, const std::vector<KeptInput>& kept, RunEdit* edit) const {
  const OffloadPlace& place = places_[index];
  for (const std::uint32_t block : OffloadedOf(index)) {
    const std::uint64_t gone = std::max(place.gone, NeededUntil(block, kept));
    if (gone >= place.back || place.back > facts_.device.allocations[block].free_event) continue;
    edit->actions.push_back({gone, block, false});
    edit->actions.push_back({place.back, block, true});
  }
}

std::vector<OffloadTrip> LayerUnits::TripsOf(const UnitChoice& choice) const {
  const std::vector<std::size_t> visits = VisitsOf(choice, UnitUse::kOffloaded);
  const std::vector<std::int64_t>& clock = facts_.clock.time_ns;
  std::vector<OffloadTrip> trips;
  for (auto i = visits.rbegin(); i != visits.rend() && SegmentOf(visits_[*i]) == SegmentOf(visits_[visits.back()]);
       ++i) {
    const LayerVisit& visit = visits_[*i];
    const OffloadPlace& place = places_[*i];
    if (!place.leaves()) continue;
    Bytes bytes = 0;
    for (const std::uint32_t block : OffloadedOf(*i)) bytes += facts_.device.allocations[block].bytes;
    trips.push_back(
        {clock[visit.forward_begin], clock[place.gone], clock[place.back], clock[visit.backward_begin], bytes});
  }
  return trips;
}

void LayerUnits::OffloadState(RunEdit* edit) const {
  const std::vector<PhaseSpan>& spans = facts_.phases.spans();
  std::vector<std::pair<std::uint64_t, std::uint64_t>> steps;  // of the optimizer
  for (std::size_t i = 0; i < spans.size(); ++i) {
    if (spans[i].kind != PhaseKind::kOptimizer) continue;
    steps.push_back({spans[i].begin_event, i + 1 < spans.size() ? spans[i + 1].begin_event : facts_.events});
  }
  for (const std::uint32_t block : state_) {
    for (std::size_t i = 0; i < steps.size(); ++i) {
      if (steps[i].second <= facts_.device.allocations[block].event) continue;
      edit->actions.push_back({steps[i].second, block, false});
      if (i + 1 < steps.size()) edit->actions.push_back({steps[i + 1].first, block, true});
    }
  }
}

// A gradient of the last micro-batch is added to what is there, and goes at once.
void LayerUnits::Accumulate(RunEdit* edit) const {
  const std::vector<PhaseSpan>& spans = facts_.phases.spans();
  for (std::uint32_t i = 0; i < facts_.blocks.size(); ++i) {
    const Allocation& gradient = facts_.device.allocations[i];
    if (facts_.blocks[i].memory_class != MemoryClass::kGradients || gradient.segment == 0) continue;
    const auto begin = std::find_if(spans.begin(), spans.end(),
                                    [&](const PhaseSpan& span) { return span.segment == gradient.segment; });
    if (begin == spans.end() || begin->begin_event > gradient.event) continue;
    const auto sum = static_cast<std::uint32_t>(facts_.device.allocations.size() + edit->extras.size());
    edit->extras.push_back({i, 0});
    edit->actions.push_back({begin->begin_event, sum, true});
    edit->actions.push_back({std::uint64_t{gradient.event} + 1, i, false});
    if (gradient.freed()) edit->actions.push_back({gradient.free_event, sum, false});
  }
}

// Where micro-batches follow each other, without a pipeline: those after the first.
void LayerUnits::FindFollowing() {
  const std::vector<PhaseSpan>& spans = facts_.phases.spans();
  bool began = false;  // a forward pass, in this iteration
  bool backward = false;
  bool following = false;
  for (std::size_t i = 0; i < spans.size(); ++i) {
    const PhaseKind kind = spans[i].kind;
    if (i > 0 && spans[i].segment != spans[i - 1].segment) began = backward = following = false;
    const bool forward = kind == PhaseKind::kForward || kind == PhaseKind::kForwardBackward;
    overlap_ = overlap_ || (forward && began && !backward);
    began = began || forward;
    if (forward && backward && !following) {
      following = true;
      following_.push_back({spans[i].begin_event, spans[i].begin_event});
    }
    backward = backward || kind == PhaseKind::kBackward || kind == PhaseKind::kForwardBackward;
    if (following && (forward || kind == PhaseKind::kBackward)) {
      following_.back().second = i + 1 < spans.size() ? spans[i + 1].begin_event : facts_.events;
    }
  }
}

bool LayerUnits::IsFollowing(std::uint64_t event) const {
  return std::any_of(following_.begin(), following_.end(),
                     [&](const auto& one) { return one.first <= event && event < one.second; });
}

void LayerUnits::ScaleFirst(double times, std::vector<BlockPart>* parts) const {
  const bool apart = !following_.empty() && !overlap_;
  if (!apart) times = std::max(times, 1.0);
  for (std::size_t i = 0; i < parts->size(); ++i) {
    if (apart && IsFollowing(facts_.device.allocations[i].event)) continue;
    BlockPart& part = (*parts)[i];
    part.scaling = std::llround(times * static_cast<double>(part.scaling));
    part.square = std::llround(times * times * static_cast<double>(part.square));
  }
}

// What their passes make and let go is gone at once; gradients that are there first in them stay.
void LayerUnits::DropFollowing(RunEdit* edit) const {
  for (const auto& [first, last] : following_) {
    const auto [begin, end] = BlocksIn(first, last);
    for (std::size_t i = begin; i < end; ++i) {
      const Allocation& one = facts_.device.allocations[i];
      if (one.freed() && one.free_event < last) {
        edit->actions.push_back({std::uint64_t{one.event} + 1, static_cast<std::uint32_t>(i), false});
      }
    }
  }
}

void LayerUnits::LeaveCachesOut(RunEdit* edit) const {
  for (const StoredBlock& stored : inputs_.stored()) edit->actions.push_back({stored.gone, stored.block, false});
}

void LayerUnits::KeepInputs(const std::vector<KeptInput>& kept, RunEdit* edit) const {
  for (const KeptInput& input : kept) {
    if (facts_.device.allocations[input.block].free_event >= input.until) continue;
    edit->staying.push_back(input.block);
    edit->actions.push_back({input.until, input.block, false});
  }
}

}  // namespace stalloc::planner
