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
// whatever the arena's height: there those that move are of 16 MiB at least. (With an 8192nd and a 2048th, of 26 GiB, a
// run whose routing collapses took 1.074 times native's step on an H200 (311 ms, 4 layers), with 8 and 16 MiB 1.000
// times, 0.945 to 1.043 with 95 % confidence.) What has never moved is as fine as elsewhere: it costs calls once. Of
// the 84 runs of dynamic_space.h, Note [In the way of slots], with 8 MiB there, E was 99.73 % on average, with an
// 8192nd 99.78; an iteration unmapped 298 and 326 chunks, the first one 820 and 1040 (all plans' blocks in slots' way
// then; 344 chunks an iteration with those of plans that vary). The smaller the arena the more it matters: the one that
// was below expandable_segments held 1.0 % more than was live, and 0.7 since.
//
// What lies where weights and state are never moves: there chunks are of a 1024th, since NCCL registration, RDMA and
// other processes that map them want few handles.
[[nodiscard]] ChunkSizes ChunkSizesOf(const DevicePlan& plan);

// Of the arena: so small a part is a chunk that moves, where nothing asks for larger ones.
inline constexpr Bytes kMovedParts = 2048;

// Maps the plan's height, in chunks of these sizes. On failure a part of it is mapped.
DriverStatus MapPlan(Arena& arena, const DevicePlan& plan) noexcept;

}  // namespace stalloc
