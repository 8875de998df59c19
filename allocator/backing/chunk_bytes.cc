#include "allocator/backing/chunk_bytes.h"

#include <algorithm>
#include <bit>
#include <vector>

#include "allocator/engine/plan_reading.h"

namespace stalloc {
namespace {

constexpr Bytes kFine = 8192;
constexpr Bytes kResting = 1024;
constexpr Bytes kMovedBytes = Bytes{16} << 20;  // at least, where sizes vary

// A power of two.
Bytes Part(Bytes arena_bytes, Bytes parts) { return std::min(std::bit_floor(arena_bytes / parts), ChunkSizes::kMost); }

bool Varies(const DevicePlan& plan) {
  return std::ranges::any_of(plan.cycle,
                             [](const Script& script) { return std::ranges::any_of(script.entries, IsVaryingEntry); });
}

// Of each part of `unit` bytes: some slot of the cycle is there.
std::vector<bool> UsedByTheCycle(const DevicePlan& plan, Bytes unit) {
  std::vector<bool> used(plan.arena_bytes / unit + 1);
  for (const Script& script : plan.cycle) {
    for (const Entry& entry : script.entries) {
      if (entry.slot == kNoSlot) continue;
      const Slot& slot = plan.slots[entry.slot];
      for (Offset part = slot.offset / unit; part * unit < slot.offset + slot.capacity; ++part) used[part] = true;
    }
  }
  return used;
}

}  // namespace

ChunkSizes ChunkSizesOf(const DevicePlan& plan) {
  ChunkSizes sizes{.grown = Part(plan.arena_bytes, kFine), .moved = Part(plan.arena_bytes, kMovedParts)};
  if (Varies(plan)) sizes.moved = std::max(sizes.moved, std::min(kMovedBytes, Part(plan.arena_bytes, kResting)));
  return sizes;
}

DriverStatus MapPlan(Arena& arena, const DevicePlan& plan) noexcept {
  const Bytes resting = Part(plan.arena_bytes, kResting);
  if (resting <= arena.chunk_bytes()) return arena.GrowTo(plan.arena_bytes);
  const std::vector<bool> used = UsedByTheCycle(plan, resting);
  DriverStatus status;
  for (auto first = used.begin(); first != used.end() && status.ok();) {
    const auto last = std::find(first, used.end(), !*first);
    const Offset end = static_cast<Bytes>(last - used.begin()) * resting;
    status = arena.GrowTo(std::min(end, plan.arena_bytes), *first ? 0 : resting);
    first = last;
  }
  return status;
}

}  // namespace stalloc
