// Revolutions: lifetimes that end in the order in which they began, micro-batch after micro-batch, laid out as in a
// ring buffer that is searched in time, one revolution after the other.
//
// In a pipeline's steady state the short-lived blocks of the peak need the room that is left over together with what is
// freed first. First fit leaves that room at one end of the arena; in a ring it lies between the youngest and the
// oldest blocks, but where the ring closes it may cut a peak's room in two. So each revolution chooses anew how it
// begins and closes (RingClosure), and its short-lived blocks are placed at once. It stays when no block ends above the
// ceiling; else the next choice is tried, and when all have failed, the search backs up to the revolution before (depth
// first). Revolutions in equal windows come out equal and are looked up: where a run repeats, its steady state costs no
// more than the few revolutions in which it comes round, however long it is. Deterministic, one thread. Bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "planner/packing/problem/instance.h"
#include "planner/packing/search/evaluator.h"
#include "planner/packing/search/search_state.h"

namespace stalloc::planner {

struct RevolutionLimits {
  Bytes ceiling = 0;
  std::uint32_t least_steps = 0;  // shorter lives are not part of the ring
  // Blocks looked at in vain: since the last time that the search got further than ever.
  std::uint64_t patience = 0;
};

// Offsets below the ceiling for all blocks; none if the search gives up, or if some block has two lifetimes and is no
// resident.
[[nodiscard]] std::optional<std::vector<Offset>> PackRevolutions(const Instance& instance, SearchState& state,
                                                                 const RevolutionLimits& limits);

// Does that with the blocks that decide the height, and completes what lowers it.
void SearchRings(Evaluator& evaluator);

}  // namespace stalloc::planner
