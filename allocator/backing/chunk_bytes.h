// How large the chunks of a plan's arena are: how finely its memory can go back to the device, or elsewhere in it.
#pragma once

#include "allocator/arena/arena.h"
#include "proto/model/plan.h"
#include "proto/model/units.h"

namespace stalloc {

// Note [Chunks of a plan's arena]
// A chunk moves, and goes back to the device, when no block lives in it, and not before. What lies idle in parts of
// chunks is lost to everybody else: to a block that finds its slot taken (idle_chunks.h), or, once the plan was given
// up, a chunk for each row of blocks that stay. So chunks are of an 8192nd of the arena (a power of two). Where they
// move in one piece they become four times as large, so that those which move again cost few calls (arena.h, Note
// [Chunks of two sizes]).
//
// Where sizes vary, chunks move in every iteration, and what that takes goes with the number of chunks in a GiB,
// whatever the arena's height: there they are of 8 and 16 MiB at least. Of 26 GiB, a replayed run whose routing
// collapses holds so much more than is live, and its moves take so long an iteration, by the calls of the driver and
// what these take on an H200 (unmapping taken as 45 us, what a move takes less the rest; 2026-11-24):
//
//   8192nd, 8192nd   8192nd, 2048th   8 and 16 MiB   all 1024th   8 and 32 MiB
//      0.28 %            0.57 %          1.10 %         0.99 %        1.46 %         (expandable_segments: 2.90 %)
//      186 ms             57 ms           26 ms          22 ms         16 ms
//
// With an 8192nd and a 2048th that run's step took 1.074 times native's on an H200 (311 ms, 4 layers), with 8 and 16
// MiB 1.000 times (0.945 to 1.043 with 95 % confidence). Of 62 GiB moves and growth took 0.2 % of the steps (8 and 16
// MiB), of 74 GiB 10 ms of a step of 1.1 s (8 and 32).
//
// What lies where weights and state are never moves: there chunks are of a 1024th, since NCCL registration, RDMA and
// other processes that map them want few handles.
[[nodiscard]] ChunkSizes ChunkSizesOf(const DevicePlan& plan);

// Maps the plan's height, in chunks of these sizes. On failure a part of it is mapped.
DriverStatus MapPlan(Arena& arena, const DevicePlan& plan) noexcept;

}  // namespace stalloc
