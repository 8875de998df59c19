#include "allocator/backing/chunk_bytes.h"

#include <algorithm>
#include <bit>
#include <vector>

#include "allocator/backing/tuning.h"
#include "allocator/base/range_set.h"
#include "allocator/engine/bytes/plan_reading.h"
#include "allocator/engine/place/idle_gaps.h"

namespace stalloc {
namespace {

using namespace tuning;  // NOLINT: numbers only

// A power of two.
Bytes Part(Bytes arena_bytes, Bytes parts) {
  return std::min(std::bit_floor(arena_bytes / parts), Arena::kMostChunkBytes);
}

}  // namespace

Bytes ChunkBytesOf(const DevicePlan& plan, Bytes left) {
  const Bytes fine = Part(plan.arena_bytes, kFineParts);
  if (left >= plan.arena_bytes / kPlentyParts) {
    return std::max(fine, std::min(kCoarseBytes, Part(plan.arena_bytes, kCoarseParts)));
  }
  const auto varies = [](const Script& script) { return std::ranges::any_of(script.entries, IsVaryingEntry); };
  if (std::ranges::none_of(plan.cycle, varies)) return fine;
  return std::max(fine, std::min(kMovedBytes, Part(plan.arena_bytes, kRestingParts)));
}

Bytes SmallChunkBytes(const DevicePlan& plan, const Arena& arena) {
  if (plan.arena_bytes == 0) return arena.chunk_bytes();
  return std::min(arena.chunk_bytes(), RoundUp(std::max<Bytes>(ChunkBytesOf(plan), 1), arena.granularity()));
}

Bytes ChunkBytesWithoutPlan(Bytes device_bytes) { return Part(device_bytes, kFinestParts); }

DriverStatus MapPlan(Arena& arena, const DevicePlan& plan) noexcept {
  const Bytes resting = Part(plan.arena_bytes, kRestingParts);
  if (resting <= SmallChunkBytes(plan, arena)) return arena.GrowTo(plan.arena_bytes);
  const SlotUses uses(plan, resting);
  const std::vector<GranuleRange> gaps = Outside(PlacesThatStay(plan), WholeGranules(plan.arena_bytes));
  const auto has_gap = [&](Offset at) {
    const auto gap = std::ranges::upper_bound(gaps, WholeGranules(at), {}, &GranuleRange::hi);
    return gap != gaps.end() && gap->lo < WholeGranules(at + resting);
  };
  const auto rests = [&](Offset at) {
    return uses.UntilDue(at / resting, uses.cycle_begin()) == SlotUses::kNever && !has_gap(at);
  };
  DriverStatus status;
  for (Offset at = 0; at < plan.arena_bytes && status.ok();) {
    Offset end = at + resting;
    while (end < plan.arena_bytes && rests(end) == rests(at)) end += resting;
    status = arena.GrowTo(std::min(end, plan.arena_bytes), rests(at) ? resting : 0);
    at = end;
  }
  return status;
}

}  // namespace stalloc
