#include "allocator/engine/place/dynamic_space.h"

#include <algorithm>
#include <array>

namespace stalloc {
DynamicSpace::DynamicSpace(const DevicePlan& plan, const DynamicSpaceOptions& options, const Occupancy& occupancy,
                           const FreedBlocks& freed, const RangeSet& withdrawn, DeferredRanges& live)
    : occupancy_(occupancy),
      freed_(freed),
      withdrawn_(withdrawn),
      live_(live),
      limit_(WholeGranules(options.limit_bytes)),
      least_(std::max<Granules>(WholeGranules(options.least_bytes), 1)),
      begins_empty_(IsEmpty(plan)),
      mapped_(WholeGranules(options.mapped_bytes)),
      gaps_(limit_ > 0 ? plan : DevicePlan{}, limit_, least_),
      late_rooms_(LateRooms(limit_ > 0 ? plan : DevicePlan{}, limit_)) {}

Granules DynamicSpace::Find(Request& request) const noexcept {
  return request.window.empty() ? FindAnywhere(request) : FindInGaps(request);
}

const RangeSet& DynamicSpace::Live() const noexcept {
  return live_.Now([this](auto&& visit) {
    occupancy_.ForEachDownwards([&](const LiveRecord& block) {
      if (!block.Is(LiveRecord::kFreed) && !block.IsOfLaunch()) visit(block.granule, block.end());
    });
  });
}

// What a request without a slot mostly costs.
Granules DynamicSpace::FindInGaps(Request& request) const noexcept {
  constexpr std::uint64_t kNoRange = ~std::uint64_t{0};
  // A range's length, and below it its place.
  std::array<std::uint64_t, tuning::kRangesCompared> ranges;
  std::size_t count = ranges.size();
  std::uint64_t least = std::uint64_t{request.granules} << 32;
  for (std::size_t tried = 0; tried < ranges.size(); ++tried, ++least) {
    if (count == ranges.size()) {  // there may be others
      count = 0;
      without_slot_.ForEachBetween(request.window, mapped_, request.granules, [&](Granules lo, Granules hi) {
        const std::uint64_t range = std::uint64_t{hi - lo} << 32 | lo;
        if (range >= least) ranges[count++] = range;
        return count < ranges.size();
      });
    }
    std::uint64_t tightest = kNoRange;
    for (std::size_t i = 0; i < count; ++i) tightest = std::min(tightest, ranges[i] >= least ? ranges[i] : kNoRange);
    if (tightest == kNoRange) return kNone;
    least = tightest;
    const auto lo = static_cast<Granules>(least);
    const Granules hi = lo + static_cast<Granules>(least >> 32);
    // Next to another block without a slot, where there is one: one free range is left, not two.
    const bool at_top = !IsWithoutSlot(lo - 1) && IsWithoutSlot(hi);
    const Granules at = at_top ? hi - request.granules : lo;
    occupancy_.Prefetch(at);
    if (LastObstacle({at, at + request.granules}, request, false).hi == 0) return at;
    // Blocks lie there, against the plan.
    if (const Granules among = Lowest({lo, hi}, request); among != kNone) return among;
  }
  return kNone;
}

// Between live blocks, what of it can be had now: freed blocks and withdrawn memory may be in the way.
Granules DynamicSpace::FindAnywhere(Request& request) const noexcept {
  Gap tightest{0, kNone};
  int ranges = 0;  // that are large enough
  Live().ForEachBetweenDownwards(mapped_, request.granules, [&](Gap gap) {
    while (gap.lo < gap.hi && gap.hi - gap.lo >= request.granules) {
      const Gap part{request.soon_over ? gap.hi - request.granules : gap.lo, gap.hi};
      const Gap obstacle = LastObstacle(part, request, true);
      // The obstacle may end above the gap: what was freed there lies across the end of what is withdrawn.
      const Granules lo = std::min(std::max(obstacle.hi, part.lo), gap.hi);
      const Granules range = gap.hi - lo;
      if (range >= request.granules) {
        if (range < tightest.hi - tightest.lo) tightest = {lo, gap.hi};
        if (++ranges == tuning::kRangesCompared || range == request.granules) return false;
      }
      if (obstacle.hi == 0) return true;
      gap.hi = obstacle.lo;
    }
    return true;
  });
  return ranges > 0 ? tightest.lo : kNone;
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

Granules DynamicSpace::Lowest(Gap gap, Request& request) const noexcept {
  while (gap.hi >= std::uint64_t{gap.lo} + request.granules) {
    const Gap obstacle = LastObstacle({gap.lo, gap.lo + request.granules}, request, false);
    if (obstacle.hi == 0) return gap.lo;
    gap.lo = obstacle.hi;
  }
  return kNone;
}

DynamicSpace::Gap DynamicSpace::LastObstacle(Gap gap, Request& request, bool between_live) const noexcept {
  Gap withdrawn;
  if (!request.may_map && !withdrawn_.empty()) {
    if (const GranuleRange* const range = withdrawn_.LastIn(gap.lo, gap.hi); range != nullptr) withdrawn = *range;
    gap.lo = std::max(gap.lo, withdrawn.hi);  // blocks above it come first
  }
  if (between_live && occupancy_.size() == live_.size()) return withdrawn;  // frees have left no traces
  const auto is_obstacle = [&](const LiveRecord& block) {
    if (freed_.CanBeHad(block, request.stream, !request.may_wait)) return false;
    request.lacks_wait = request.lacks_wait || FreedBlocks::IsReusable(block);
    return true;
  };
  const LiveRecord* const block = occupancy_.LastIn(gap.lo, gap.hi, is_obstacle);
  return block != nullptr ? Gap{block->granule, block->end()} : withdrawn;
}

}  // namespace stalloc
