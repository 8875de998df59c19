// How large the chunks of a plan's arena are: how finely its memory can go back to the device, or elsewhere in it.
#pragma once

#include "proto/model/units.h"

namespace stalloc {

// Note [Chunks of a plan's arena]
// A chunk moves, and goes back to the device, when no block lives in it, and not before: a handle cannot be split once
// it is mapped. What lies idle in parts of chunks is lost to everybody else: to a large block that finds its slot taken
// (idle_chunks.h), or, once the plan was given up, a chunk for each row of blocks that stay: the weights at the arena's
// bottom are one row, blocks that the plan did not know may each be one. A 1024th part of the arena (a power of two)
// keeps twenty such rows below two percent, and the large blocks of recorded runs with experts move without any growth.
// Parts half as large hold as much there and cost twice the calls of the driver. From 20 GiB on that is more than
// expandable_segments' 20 MiB. Bytes; a driver's granularity is the least there is, which the arena sees to.
[[nodiscard]] Bytes ChunkBytesOf(Bytes arena_bytes);

}  // namespace stalloc
