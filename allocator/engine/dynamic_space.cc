#include "allocator/engine/dynamic_space.h"

#include <algorithm>

#include "allocator/engine/plan_reading.h"

namespace stalloc {
namespace {

// Where so many rooms are large enough there is slack, and the tightest of the first ones will do.
constexpr int kMostRooms = 32;

}  // namespace

DynamicSpace::DynamicSpace(const DevicePlan& plan, const DynamicSpaceOptions& options, const Occupancy& occupancy,
                           const FreedBlocks& freed, const WithdrawnRanges& withdrawn)
    : occupancy_(occupancy),
      freed_(freed),
      withdrawn_(withdrawn),
      limit_(WholeGranules(options.limit_bytes)),
      least_(std::max<std::uint32_t>(WholeGranules(options.least_bytes), 1)),
      mapped_(WholeGranules(options.mapped_bytes)),
      gaps_(limit_ > 0 ? plan : DevicePlan{}, limit_, least_),
      late_rooms_(limit_ > 0 ? plan : DevicePlan{}, limit_),
      stays_at_side_(options.rules.Have(Rule::kSideThatStays)) {}

std::uint32_t DynamicSpace::Find(const Request& request, Cost cost) const noexcept {
  if (!request.window.empty()) return FindIn(request.window, request, cost);
  const Gap mapped{0, mapped_};
  return request.soon_over ? Highest(mapped, request, cost) : Tightest(mapped, request, cost);
}

std::uint32_t DynamicSpace::FindIn(IdleGaps::Window window, const Request& request, Cost cost) const noexcept {
  const Gap tightest = TightestRoom(window, request.granules);
  if (tightest.hi == 0) return kNone;
  const Gap bottom{tightest.lo, tightest.lo + request.granules};
  const Gap top{tightest.hi - request.granules, tightest.hi};
  // See Note [The side that stays].
  const bool grows_downwards = stays_at_side_ && extents_.TouchOnlyAbove(tightest.lo, tightest.hi);
  occupancy_.Prefetch(grows_downwards ? top.lo : bottom.lo);
  if (grows_downwards && LastObstacle(top, request, cost).hi == 0) return top.lo;
  return LastObstacle(bottom, request, cost).hi == 0 ? bottom.lo : FindAmongBlocks(window, request, cost);
}

// What a request without a slot mostly costs. Which gap is large enough is as good as random, so that nothing branches
// on it: a mistaken branch costs more than to look at some gaps.
DynamicSpace::Gap DynamicSpace::TightestRoom(IdleGaps::Window window, std::uint32_t granules) const noexcept {
  // A room's length, and below it its place. Less what is too short, which wraps and so is beyond all others.
  const std::uint64_t least = std::uint64_t{granules} << 32;
  std::uint64_t tightest = ~std::uint64_t{0};
  int rooms = 0;  // that are large enough
  const Gap* gap = window.data();
  const Gap* const end = gap + window.size();
  for (const Extents::Extent* below = extents_.Between(); gap != end && rooms < kMostRooms; ++below) {
    const std::uint32_t free_lo = below[0].hi;
    const std::uint32_t free_hi = std::min(below[1].lo, mapped_);
    const auto look = [&] {
      const std::uint32_t lo = std::max(gap->lo, free_lo);
      const std::uint32_t hi = std::max(std::min(gap->hi, free_hi), lo);
      const std::uint64_t room = std::uint64_t{hi - lo} << 32 | lo;
      rooms += room >= least ? 1 : 0;
      tightest = std::min(tightest, room - least);
    };
    for (; gap != end && gap->hi <= below[1].lo && rooms < kMostRooms; ++gap) look();
    if (gap != end && rooms < kMostRooms) look();  // it may go on behind the extent
  }
  if (rooms == 0) return {};
  const auto lo = static_cast<std::uint32_t>(tightest);
  return {lo, lo + granules + static_cast<std::uint32_t>(tightest >> 32)};
}

// Where blocks lie in the tightest room, against the plan.
std::uint32_t DynamicSpace::FindAmongBlocks(IdleGaps::Window window, const Request& request, Cost cost) const noexcept {
  std::uint32_t best = kNone;
  std::uint32_t best_room = kNone;
  int rooms = 0;  // that are large enough
  const auto visit = [&](std::uint32_t lo, std::uint32_t hi) {
    if (hi - lo < request.granules) return true;
    if (++rooms > kMostRooms) return best == kNone;
    if (hi - lo >= best_room) return true;
    const std::uint32_t place = Lowest({lo, hi}, request, cost);
    if (place == kNone) return true;
    best = place;
    best_room = hi - lo;
    return best_room > request.granules;
  };
  Extents::Walk walk(extents_);
  for (const Gap& gap : window) {
    const std::uint32_t hi = std::min(gap.hi, mapped_);
    if (hi <= gap.lo || hi - gap.lo < request.granules) continue;
    walk.ForEachFree(gap.lo, hi, visit);
    if (best_room == request.granules || (rooms > kMostRooms && best != kNone)) break;
  }
  return best;
}

std::uint32_t DynamicSpace::Tightest(Gap gap, const Request& request, Cost cost) const noexcept {
  std::uint32_t best = kNone;
  std::uint32_t best_room = kNone;
  int rooms = 0;  // that are large enough
  while (gap.lo < gap.hi && gap.hi - gap.lo >= request.granules) {
    const Gap obstacle = LastObstacle(gap, request, cost);
    // The obstacle may end above the gap: what was freed there lies across the end of what is withdrawn.
    const std::uint32_t lo = std::min(std::max(obstacle.hi, gap.lo), gap.hi);
    const std::uint32_t room = gap.hi - lo;
    if (room >= request.granules) {
      ++rooms;
      if (room < best_room) {
        best = lo;
        best_room = room;
      }
    }
    if (obstacle.hi == 0 || best_room == request.granules || rooms == kMostRooms) break;
    gap.hi = obstacle.lo;
  }
  return best;
}

// Only what would end above what is mapped: everything below was tried.
std::uint32_t DynamicSpace::FindAbove(const Request& request) const noexcept {
  const std::uint32_t lowest = mapped_ - std::min(mapped_, request.granules - 1);
  const std::uint32_t idle = request.window.empty() ? 0 : request.window.back().lo;
  return Lowest({std::max(idle, lowest), limit_}, request, Cost::kMapping);
}

std::uint32_t DynamicSpace::Lowest(Gap gap, const Request& request, Cost cost) const noexcept {
  while (gap.lo < gap.hi && gap.hi - gap.lo >= request.granules) {
    const Gap obstacle = LastObstacle({gap.lo, gap.lo + request.granules}, request, cost);
    if (obstacle.hi == 0) return gap.lo;
    gap.lo = obstacle.hi;
  }
  return kNone;
}

std::uint32_t DynamicSpace::Highest(Gap gap, const Request& request, Cost cost) const noexcept {
  while (gap.lo < gap.hi && gap.hi - gap.lo >= request.granules) {
    const Gap obstacle = LastObstacle({gap.hi - request.granules, gap.hi}, request, cost);
    if (obstacle.hi == 0) return gap.hi - request.granules;
    gap.hi = obstacle.lo;
  }
  return kNone;
}

DynamicSpace::Gap DynamicSpace::LastObstacle(Gap gap, const Request& request, Cost cost) const noexcept {
  Gap withdrawn;
  if (cost != Cost::kMapping && !request.refills && !withdrawn_.empty()) {
    const WithdrawnRanges::Range* const range = withdrawn_.LastIn(gap.lo, gap.hi);
    if (range != nullptr) withdrawn = {range->lo, range->hi};
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
