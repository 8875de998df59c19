// Packs small blocks apart from the others, below them.
//
// In a run that differs from its plan a block may stay longer than planned, and the block planned for its bytes is
// turned away: a small block then costs the size of the large one. Apart from each other they cost what they are. The
// packing is higher by what small blocks need at their own peak, less what they need at everybody's. Where nothing
// varies it is the smallest that are worth it, above all: scalars that Python and loggers hold on to.
#pragma once

#include <functional>

#include "planner/packing/problem/problem.h"
#include "planner/packing/problem/work.h"

namespace stalloc::planner {

// Packs blocks of fewer than `least` bytes by size, and the rest by `solve`, which is given the work that the others
// took. The rest's bound is no bound of the whole: none is given. Pure but for `solve`.
[[nodiscard]] Packing PackApart(const Problem& problem, Bytes least,
                                const std::function<Packing(const Problem&, Work)>& solve);

// Packs those blocks anew, by size, and lifts the others of a valid packing above them.
[[nodiscard]] Packing LiftApart(const Problem& problem, Bytes least, const Packing& packing);

// The greatest size, at most `most`, below which blocks may be packed apart in a packing of this height, by the load
// bounds of both parts; 0: none. O(n log n).
[[nodiscard]] Bytes WorthApart(const Problem& problem, Bytes most, Bytes height);

}  // namespace stalloc::planner
