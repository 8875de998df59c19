#include "planner/analysis/pool_choice.h"

#include "planner/analysis/lend.h"
#include "planner/analysis/timeline.h"

namespace stalloc::planner {

PoolChoice ChoosePools(const TracedRank& traced, const DeviceTrace& device, const SteadyModel& model,
                       const SlotChoice& choice) {
  const auto find = [&](bool gathered) {
    PoolChoice found{.pools = FindLendablePools(traced, device, gathered), .schedule = {}};
    found.schedule = SchedulePools(found.pools, traced.segmentation, device, model);
    return found;
  };
  PoolChoice in_order = find(false);
  if (in_order.schedule.empty()) return in_order;
  PoolChoice gathered = find(true);
  const Timeline timeline = BuildTimeline(device, model, choice);
  const auto cycle_bytes = [&](const PoolChoice& pools) {
    return ChooseLent(pools.schedule, device, model, timeline).cycle_bytes;
  };
  return cycle_bytes(gathered) <= cycle_bytes(in_order) ? gathered : in_order;
}

}  // namespace stalloc::planner
