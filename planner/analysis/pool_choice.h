// Graphs' pools for a plan's requests: in the order of their layouts, or with lendable pieces gathered (LentPool),
// whichever lets the cycle hold less. If both do, gathered: large blocks that no plan has find a place, too. Pure.
#pragma once

#include "planner/analysis/lendable_pools.h"
#include "planner/analysis/pool_schedule.h"
#include "planner/analysis/slot_choice.h"
#include "planner/analysis/steady.h"
#include "planner/analysis/traced_rank.h"

namespace stalloc::planner {

struct PoolChoice {
  LendablePools pools;
  PoolSchedule schedule;
};

// REQUIRES: `model` has no pools.
[[nodiscard]] PoolChoice ChoosePools(const TracedRank& traced, const DeviceTrace& device, const SteadyModel& model,
                                     const SlotChoice& choice);

}  // namespace stalloc::planner
