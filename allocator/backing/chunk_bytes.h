// How large the chunks of a plan's arena are: how finely its memory can go back to the device, or elsewhere in it
// (README, Chunks of a plan's arena). Bytes; a failure is the driver's.
#pragma once

#include "allocator/arena/arena.h"
#include "proto/model/plan.h"
#include "proto/model/units.h"

namespace stalloc {

// `left`: what the device has for others once the plan is mapped. Where that is plenty, chunks are large.
[[nodiscard]] Bytes ChunkBytesOf(const DevicePlan& plan, Bytes left = 0);

// Of the arena's chunks once the device is full; never more than they have now.
[[nodiscard]] Bytes SmallChunkBytes(const DevicePlan& plan, const Arena& arena);

// For an arena whose height nobody knows: small, since what lies idle between blocks that stay is given back by the
// chunk.
[[nodiscard]] Bytes ChunkBytesWithoutPlan(Bytes device_bytes);

// Maps the plan's height; what blocks fill that stay for good, in larger chunks. On failure a part of it is mapped.
DriverStatus MapPlan(Arena& arena, const DevicePlan& plan) noexcept;

}  // namespace stalloc
