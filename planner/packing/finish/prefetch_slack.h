// Prefetch slack: blocks of side streams begin early, so that their stream need not wait for their bytes.
//
//   offset ^                                    gathered for layer 3: its stream waits until layer 2 is computed, if it
//          |  | weights 1 |?? gathered 3 |      takes the bytes that layer 2's weights leave at that moment
//          |     | gathered 2 | weights 3 |
//          +--------------------------------> tick
//
// Bytes pass from one stream to another after all work that the first one was given before it freed them. A block that
// gathers the next layer's weights while this layer is computed would begin only then. So such a block
// has its place from the moment that its stream last freed one as large, as it would have in a pool of its own, but
// only as far back as that makes no peak higher.
#pragma once

#include <optional>

#include "planner/packing/problem/problem.h"

namespace stalloc::planner {

// The problem with blocks of all streams but the main one, whose load is greatest, alive earlier; none where all stay
// as they are, as blocks of two lives do. Its load bound is the same, and its packings are valid ones of `problem`.
// O(n log n + ticks). Pure; thread-safe.
[[nodiscard]] std::optional<Problem> ExtendForPrefetch(const Problem& problem, const CycleAxis& cycle);

}  // namespace stalloc::planner
