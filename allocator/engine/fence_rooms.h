// Where blocks go that are asked for in a fence, of which nobody knows when they will be freed (README, Fences). Found
// when a plan is loaded, O(entries log entries). In granules.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "allocator/engine/plan_reading.h"
#include "allocator/engine/script_cursor.h"
#include "proto/model/plan.h"

namespace stalloc {

// The places that a plan has for what evaluations and checkpoints leave behind for good, and for blocks of which size.
using KeptPlaces = std::vector<std::pair<Granules, LoadedScript::Place>>;
[[nodiscard]] KeptPlaces KeptPlacesOf(const DevicePlan& plan, const std::vector<std::uint16_t>& slot_flags);

// The addresses below `limit` that all iterations of the cycle use late, or not at all, what is used last first; none
// that are empty.
[[nodiscard]] std::vector<std::vector<GranuleRange>> LateRooms(const DevicePlan& plan, Granules limit);

}  // namespace stalloc
