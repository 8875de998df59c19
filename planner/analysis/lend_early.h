// Which requests of the prologue lie in graphs' pools, once these are filled: an optimizer that makes its state after
// the captures, and iterations with launches that are not yet the cycle's.
//
//   pools    filling | idle        |launches ..... |
//   arena    ........| state, step | iterations ...| cycle
//
// Pure; deterministic.
#pragma once

#include <cstddef>
#include <vector>

#include "planner/analysis/byte_ranges.h"
#include "planner/analysis/lifetimes.h"
#include "planner/analysis/pool_schedule.h"
#include "planner/analysis/timeline.h"

namespace stalloc::planner {

struct EarlyLent {
  LentRequest request;   // its script is of the prologue, its offset in the pool's place
  std::size_t pool = 0;  // of the schedule's
};

// The largest blocks first, at the peak of that time, until it is no higher than `enough`: as much is held later
// anyway. None where that does not lower it. `own`: by pool, bytes of its place that have no memory of the pool's.
[[nodiscard]] std::vector<EarlyLent> ChooseEarlyLent(const PoolSchedule& schedule, const std::vector<ByteRanges>& own,
                                                     const DeviceTrace& device, const Timeline& timeline, Bytes enough);

}  // namespace stalloc::planner
