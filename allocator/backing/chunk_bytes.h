// How large the chunks of a plan's arena are: how finely its memory can go back to the device, or elsewhere in it.
#pragma once

#include "allocator/arena/arena.h"
#include "proto/model/plan.h"
#include "proto/model/units.h"

namespace stalloc {

// Note [Chunks of a plan's arena]
// A chunk moves, and goes back to the device, when no block lives in it, and not before. What lies idle in parts of
// chunks is lost to everybody else. So chunks are of an 8192nd of the arena (a power of two). Where they move in one
// piece they become four times as large, so that those which move again cost few calls (arena.h, Note [Chunks of two
// sizes]). Where sizes vary chunks move in every iteration, and what that takes goes with the number of chunks in a
// GiB: there those that move are of 16 MiB at least.
//
// What lies where weights and state are never moves: there chunks are of a 1024th, since NCCL registration, RDMA and
// other processes that map them want few handles.
[[nodiscard]] ChunkSizes ChunkSizesOf(const DevicePlan& plan);

// Of the arena: so small a part is a chunk that moves, where nothing asks for larger ones.
inline constexpr Bytes kMovedParts = 2048;

// Maps the plan's height, in chunks of these sizes. On failure a part of it is mapped.
DriverStatus MapPlan(Arena& arena, const DevicePlan& plan) noexcept;

}  // namespace stalloc
