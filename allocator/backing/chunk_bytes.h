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
// [Chunks of two sizes]): 26 GiB of a replayed run whose routing collapses held 0.57 % more than was live so, 0.28 %
// with small chunks alone and 0.98 % with a 1024th; their moves took 57, 186 and 22 ms an iteration, by the calls of
// the driver and what these take on an H200. 51 runs with what varies: bench/README.md.
//
// What lies where weights and state are never moves: there chunks are of a 1024th, since NCCL registration, RDMA and
// other processes that map them want few handles.
[[nodiscard]] ChunkSizes ChunkSizesOf(Bytes arena_bytes);

// Maps the plan's height, in chunks of these sizes. On failure a part of it is mapped.
DriverStatus MapPlan(Arena& arena, const DevicePlan& plan) noexcept;

}  // namespace stalloc
