// Which requests of the cycle lie in graphs' pools instead of the arena: those whose blocks make the cycle's peak, as
// far as a place is free there for all their life. Each is taken out of the load, which then has its peak elsewhere;
// what does not lower the load at last, with own memory in the pools' places, stays in the arena. There is own memory
// for blocks that make the peak and fit nowhere (lending_space.h).
//
//   pool ^   [need of A]      [B   ]              blocks end before a launch begins that needs their bytes, and begin
//        |   [       ]  lent  [    ]  lent        after it
//        +--------------------------------> tick of the cycle
//
// Lent are blocks that live within one cycle, of the stream that has most of its bytes, alone: what varies in size or
// stays is not. Pure; deterministic.
#pragma once

#include <cstddef>

#include "planner/analysis/lifetimes.h"
#include "planner/analysis/pool_schedule.h"
#include "planner/analysis/steady.h"
#include "planner/analysis/timeline.h"

namespace stalloc::planner {

// Smaller blocks are not worth a place.
inline constexpr Bytes kLeastLent = Bytes{256} << 10;

// `timeline` has all blocks and no turns; `model` is its model. At most kMostTries blocks are tried: O(blocks * tries).
inline constexpr std::size_t kMostTries = 1u << 14;
inline constexpr std::size_t kMostOwnTries = 128;  // of these with own memory
[[nodiscard]] Lending ChooseLent(const PoolSchedule& schedule, const DeviceTrace& device, const SteadyModel& model,
                                 const Timeline& timeline);

// Takes the blocks of these requests, in all copies, out of the timeline's problem. Once.
void Lend(Lending lending, Timeline* timeline);

}  // namespace stalloc::planner
