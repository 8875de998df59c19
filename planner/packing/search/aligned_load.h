// The load bound, raised by what alignment costs.
//
// Where all offsets are multiples of g, every block but the topmost occupies its size rounded up to a multiple of g. So
// no packing is lower than the rounded sizes of what is alive at one time, less the greatest padding among them. The
// blocks whose alignment is a multiple of g are a part of the instance, so this holds for each g; it is tried for each
// power of two that matters. Stateless; thread-safe. Bytes.
#pragma once

#include "planner/packing/problem/instance.h"

namespace stalloc::planner {

// No packing is lower; at least the load bound. O(n) where every size is a multiple of the block's alignment, else
// O(n log n) for each power of two among the divisors of alignments.
[[nodiscard]] Bytes AlignedLoadBound(const Instance& instance);

}  // namespace stalloc::planner
