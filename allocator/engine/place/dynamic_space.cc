#include "allocator/engine/place/dynamic_space.h"

#include <algorithm>

namespace stalloc {
namespace {

// The tightest of them so far, and a place in it.
struct Tightest {
  // Looks at one that is large enough; place(): kNone if there is none in it after all. False when no more are wanted.
  template <typename Place>
  bool Consider(Granules granules, Granules asked, Place&& place) {
    const Granules found = granules < room ? place() : DynamicSpace::kNone;
    if (found != DynamicSpace::kNone) {
      at = found;
      room = granules;
    }
    return ++rooms < tuning::kRoomsCompared && room > asked;
  }

  Granules at = DynamicSpace::kNone;
  Granules room = DynamicSpace::kNone;
  int rooms = 0;
};

}  // namespace

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

Granules DynamicSpace::Find(const Request& request, Cost cost) const noexcept {
  return request.window.empty() ? FindAnywhere(request, cost) : FindIn(request.window, request, cost);
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
Granules DynamicSpace::FindIn(IdleGaps::Window window, const Request& request, Cost cost) const noexcept {
  // A room's length, and below it its place. Less what is too short, which wraps and so is beyond all others.
  const std::uint64_t least = std::uint64_t{request.granules} << 32;
  std::uint64_t tightest = ~std::uint64_t{0};
  int rooms = 0;  // that are large enough
  ForEachRoom(window, [&](Granules lo, Granules hi) {
    const std::uint64_t room = std::uint64_t{hi - lo} << 32 | lo;
    rooms += room >= least ? 1 : 0;
    tightest = std::min(tightest, room - least);
    return rooms < tuning::kRoomsCompared;
  });
  if (rooms == 0) return kNone;
  const auto room = static_cast<Granules>(tightest);
  const Granules end = room + request.granules + static_cast<Granules>(tightest >> 32);
  // Next to another block beside the slots, where there is one: what is left is one room, not two.
  const bool at_top = !IsBeside(room - 1) && IsBeside(end);
  const Granules lo = at_top ? end - request.granules : room;
  occupancy_.Prefetch(lo);
  const bool vacant = LastObstacle({lo, lo + request.granules}, request, cost).hi == 0;
  return vacant ? lo : FindAmongBlocks(window, request, cost);
}

// Where blocks lie in the tightest room, against the plan.
Granules DynamicSpace::FindAmongBlocks(IdleGaps::Window window, const Request& request, Cost cost) const noexcept {
  Tightest tightest;
  ForEachRoom(window, [&](Granules lo, Granules hi) {
    return hi - lo < request.granules || tightest.Consider(hi - lo, request.granules, [&] {
      return Lowest({lo, hi}, request, cost);
    });
  });
  return tightest.at;
}

// Between live blocks, what of it can be had now: freed blocks and withdrawn memory may be in the way.
Granules DynamicSpace::FindAnywhere(const Request& request, Cost cost) const noexcept {
  Tightest tightest;
  const auto look = [&](Gap gap) {
    while (gap.lo < gap.hi && gap.hi - gap.lo >= request.granules) {
      const Gap part{request.soon_over ? gap.hi - request.granules : gap.lo, gap.hi};
      const Gap obstacle = LastObstacle(part, request, cost);
      // The obstacle may end above the gap: what was freed there lies across the end of what is withdrawn.
      const Granules lo = std::min(std::max(obstacle.hi, part.lo), gap.hi);
      const bool fits = gap.hi - lo >= request.granules;
      if (fits && !tightest.Consider(gap.hi - lo, request.granules, [lo] { return lo; })) return false;
      if (obstacle.hi == 0) return true;
      gap.hi = obstacle.lo;
    }
    return true;
  };
  const auto last_live = [this](Granules lo, Granules hi) { return occupancy_.LastLiveIn(lo, hi); };
  live_gaps_.ForEachDownwards(mapped_, request.granules, freed_.last_stamp(), last_live, look);
  return tightest.at;
}

// Only what would end above what is mapped: everything below was tried.
Granules DynamicSpace::FindAbove(const Request& request) const noexcept {
  const Granules lowest = mapped_ - std::min(mapped_, request.granules - 1);
  const Granules idle = request.window.empty() ? 0 : request.window.back().lo;
  return Lowest({std::max(idle, lowest), limit_}, request, Cost::kMapping);
}

Granules DynamicSpace::Lowest(Gap gap, const Request& request, Cost cost) const noexcept {
  while (gap.lo < gap.hi && gap.hi - gap.lo >= request.granules) {
    const Gap obstacle = LastObstacle({gap.lo, gap.lo + request.granules}, request, cost);
    if (obstacle.hi == 0) return gap.lo;
    gap.lo = obstacle.hi;
  }
  return kNone;
}

DynamicSpace::Gap DynamicSpace::LastObstacle(Gap gap, const Request& request, Cost cost) const noexcept {
  Gap withdrawn;
  if (cost != Cost::kMapping && !request.refills && !withdrawn_.empty()) {
    if (const GranuleRange* const range = withdrawn_.LastIn(gap.lo, gap.hi); range != nullptr) withdrawn = *range;
    gap.lo = std::max(gap.lo, withdrawn.hi);  // blocks above it come first
  }
  if (gap.lo >= gap.hi) return withdrawn;
  for (const LiveRecord* block = occupancy_.LastIn(gap.lo, gap.hi); block != nullptr;
       block = occupancy_.LastIn(gap.lo, gap.hi)) {
    if (!freed_.CanBeHad(*block, request.stream, cost == Cost::kNothing)) return {block->granule, block->end()};
    gap.hi = block->granule;
    if (gap.hi <= gap.lo) break;
  }
  return withdrawn;
}

}  // namespace stalloc
