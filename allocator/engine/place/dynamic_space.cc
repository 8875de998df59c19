#include "allocator/engine/place/dynamic_space.h"

#include <algorithm>

namespace stalloc {
DynamicSpace::DynamicSpace(const DevicePlan& plan, const DynamicSpaceOptions& options, const Occupancy& occupancy,
                           const FreedBlocks& freed, const RangeSet& withdrawn, GapIndex& live_gaps)
    : occupancy_(occupancy),
      freed_(freed),
      withdrawn_(withdrawn),
      live_gaps_(live_gaps),
      limit_(WholeGranules(options.limit_bytes)),
      least_(std::max<Granules>(WholeGranules(options.least_bytes), 1)),
      begins_empty_(IsEmpty(plan)),
      mapped_(WholeGranules(options.mapped_bytes)),
      gaps_(limit_ > 0 ? plan : DevicePlan{}, limit_, least_),
      late_rooms_(LateRooms(limit_ > 0 ? plan : DevicePlan{}, limit_)) {}

Granules DynamicSpace::Find(const Request& request) const noexcept {
  return request.window.empty() ? FindAnywhere(request) : FindInGaps(request);
}

template <typename Visit>
void DynamicSpace::ForEachRoom(IdleGaps::Window window, Visit&& visit) const noexcept {
  const Gap* gap = window.data();
  const Gap* const end = gap + window.size();
  for (const GranuleRange* below = beside_.BetweenFrom(gap->lo); gap != end; ++below) {
    const Granules free_lo = below[0].hi;
    const Granules free_hi = std::min(below[1].lo, mapped_);
    const auto look = [&] {
      const Granules lo = std::max(gap->lo, free_lo);
      return visit(lo, std::max(std::min(gap->hi, free_hi), lo));
    };
    for (; gap != end && gap->hi <= below[1].lo; ++gap) {
      if (!look()) return;
    }
    if (gap != end && !look()) return;  // it may go on behind the block
  }
}

// What a request without a slot mostly costs. Which gap is large enough is as good as random, so that nothing branches
// on it: a mistaken branch costs more than to look at some gaps.
Granules DynamicSpace::FindInGaps(const Request& request) const noexcept {
  // Rooms of so much or more are looked for: a room's length, and below it its place.
  std::uint64_t least = std::uint64_t{request.granules} << 32;
  for (int tried = 0; tried < tuning::kRoomsCompared; ++tried, ++least) {
    std::uint64_t tightest = ~std::uint64_t{0};  // less `least`: what has less wraps, and so is beyond all others
    int rooms = 0;
    ForEachRoom(request.window, [&](Granules lo, Granules hi) {
      const std::uint64_t room = std::uint64_t{hi - lo} << 32 | lo;
      rooms += room >= least ? 1 : 0;
      tightest = std::min(tightest, room - least);
      return rooms < tuning::kRoomsCompared;
    });
    if (rooms == 0) return kNone;
    least += tightest;
    const auto lo = static_cast<Granules>(least);
    const Granules hi = lo + static_cast<Granules>(least >> 32);
    // Next to another block beside the slots, where there is one: what is left is one room, not two.
    const bool at_top = !IsBeside(lo - 1) && IsBeside(hi);
    const Granules at = at_top ? hi - request.granules : lo;
    occupancy_.Prefetch(at);
    if (LastObstacle({at, at + request.granules}, request).hi == 0) return at;
    // Blocks lie there, against the plan.
    if (const Granules among = Lowest({lo, hi}, request); among != kNone) return among;
  }
  return kNone;
}

// Between live blocks, what of it can be had now: freed blocks and withdrawn memory may be in the way.
Granules DynamicSpace::FindAnywhere(const Request& request) const noexcept {
  Gap tightest{0, kNone};
  int rooms = 0;  // that are large enough
  const auto look = [&](Gap gap) {
    while (gap.lo < gap.hi && gap.hi - gap.lo >= request.granules) {
      const Gap part{request.soon_over ? gap.hi - request.granules : gap.lo, gap.hi};
      const Gap obstacle = LastObstacle(part, request);
      // The obstacle may end above the gap: what was freed there lies across the end of what is withdrawn.
      const Granules lo = std::min(std::max(obstacle.hi, part.lo), gap.hi);
      const Granules room = gap.hi - lo;
      if (room >= request.granules) {
        if (room < tightest.hi - tightest.lo) tightest = {lo, gap.hi};
        if (++rooms == tuning::kRoomsCompared || room == request.granules) return false;
      }
      if (obstacle.hi == 0) return true;
      gap.hi = obstacle.lo;
    }
    return true;
  };
  const auto last_live = [this](Granules lo, Granules hi) {
    const auto is_live = [](const LiveRecord& block) { return !block.Is(LiveRecord::kFreed); };
    const LiveRecord* const block = occupancy_.LastIn(lo, hi, is_live);
    return block != nullptr ? Gap{block->granule, block->end()} : Gap{};
  };
  live_gaps_.ForEachDownwards(mapped_, request.granules, freed_.last_stamp(), last_live, look);
  return rooms > 0 ? tightest.lo : kNone;
}

Granules DynamicSpace::FindUnmapped(Request request) const noexcept {
  request.may_wait = request.may_map = true;
  const Granules granule = withdrawn_.empty() ? kNone : Find(request);
  if (granule != kNone) return granule;
  // Only what would end above what is mapped: everything below was tried.
  const Granules lowest = mapped_ - std::min(mapped_, request.granules - 1);
  const Granules idle = request.window.empty() ? 0 : request.window.back().lo;
  return Lowest({std::max(idle, lowest), limit_}, request);
}

Granules DynamicSpace::Lowest(Gap gap, const Request& request) const noexcept {
  while (gap.lo < gap.hi && gap.hi - gap.lo >= request.granules) {
    const Gap obstacle = LastObstacle({gap.lo, gap.lo + request.granules}, request);
    if (obstacle.hi == 0) return gap.lo;
    gap.lo = obstacle.hi;
  }
  return kNone;
}

DynamicSpace::Gap DynamicSpace::LastObstacle(Gap gap, const Request& request) const noexcept {
  Gap withdrawn;
  if (!request.may_map && !withdrawn_.empty()) {
    if (const GranuleRange* const range = withdrawn_.LastIn(gap.lo, gap.hi); range != nullptr) withdrawn = *range;
    gap.lo = std::max(gap.lo, withdrawn.hi);  // blocks above it come first
  }
  const auto is_obstacle = [&](const LiveRecord& block) {
    return !freed_.CanBeHad(block, request.stream, !request.may_wait);
  };
  const LiveRecord* const block = occupancy_.LastIn(gap.lo, gap.hi, is_obstacle);
  return block != nullptr ? Gap{block->granule, block->end()} : withdrawn;
}

}  // namespace stalloc
