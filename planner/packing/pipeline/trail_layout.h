// TrailLayout: passes laid into the segments of trails (room_trails.h), tensor by tensor.
//
// A pass fills the segments of its chain to the last unit, as they are when it comes; its critical piece lies where the
// seam will be at which the room meets it. Pure function. Bytes.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "planner/packing/pipeline/pass_rounds.h"
#include "planner/packing/pipeline/room_trails.h"
#include "planner/packing/problem/instance.h"

namespace stalloc::planner {

// What the search of trails has to know of an iteration.
[[nodiscard]] TrailProblem TrailProblemOf(const Instance& instance, const PassRounds& rounds);

using PlacedBlock = std::pair<BlockIndex, Offset>;

// None where a pass's tensors do not fill its segments. REQUIRES: trails for TrailProblemOf(instance, rounds).
[[nodiscard]] std::optional<std::vector<PlacedBlock>> LayOutPasses(const Instance& instance, const PassRounds& rounds,
                                                                   Trails trails);

}  // namespace stalloc::planner
