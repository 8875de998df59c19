// Packs small blocks apart from the others, below them.
//
// In a run that differs from its plan a block may stay longer than planned, and whoever is planned for its bytes is
// turned away: a small block then costs the size of the large one. Apart from each other they cost what they are. The
// packing is higher by what small blocks need at their own peak, less what they need at everybody's.
#pragma once

#include <functional>

#include "planner/packing/problem.h"

namespace stalloc::planner {

// Packs blocks of fewer than `least` bytes by size, and the rest by `solve`. The rest's bound is no bound of the whole:
// none is given. Pure but for `solve`.
[[nodiscard]] Packing PackApart(const Problem& problem, Bytes least,
                                const std::function<Packing(const Problem&)>& solve);

}  // namespace stalloc::planner
