// SlotTrial: which choice of slots holds least, found by serving traced iterations as if they were still to come.
//
//   traced    set-up | warm-up | template | typical | typical | typical
//   plan of        x         x          x         x                       the held-out iteration is not known to it
//   served         x         x                    o         x         x   how much is held?
//
// Each candidate is planned from all typical iterations but one, and serves that one, after the set-up, the warm-up and
// the iteration before it; and all others (o) but the template where there is work for it. The rest must show what
// varies: two typical iterations, or one and the warm-up. With four typical iterations or more two are held out in
// direction, and the worse of the two outcomes counts; with too few, or where nothing varies in those that are left,
// nothing is held out, and the plan of all of them serves all of them.
//
// The candidate that holds least is taken; of equal ones that which serves more from slots, which is quicker than a
// search. One whose slots need more than another candidate holds is neither packed nor served. Where all hold much more
// than is live, a plan of nothing but what stays is tried as well.
//
// Half of the work for packing is spent at most. Where that is too little for all of this one iteration is held out,
// and then candidates are left out; with too little for two of them nothing is tried. So it is where all come to one
// plan.
#pragma once

#include <optional>
#include <vector>

#include "planner/analysis/device_planner.h"
#include "planner/analysis/slot_judge.h"

namespace stalloc::planner {

class SlotTrial final : public SlotJudge {
 public:
  // None: what varies has slots of none, the template's, and the largest sizes. With `headroom` (a share of the largest
  // size) only the last of these is tried, and so taken.
  explicit SlotTrial(std::optional<double> headroom = std::nullopt);

  [[nodiscard]] absl::StatusOr<TrialReport> Judge(const TracedRank& traced, const DeviceTrace& device,
                                                  const SteadyModel& model,
                                                  const PackingOptions& packing) const override;
  [[nodiscard]] absl::StatusOr<TrialOutcome> Serve(const TracedRank& traced, const DeviceTrace& device,
                                                   const DevicePlan& plan,
                                                   const std::vector<bool>& lent) const override;

 private:
  std::vector<SlotChoice> choices_;
};

// Iterations to hold out, latest first; none if too few were traced.
[[nodiscard]] std::vector<std::uint32_t> IterationsToHoldOut(const Cycle& cycle);

}  // namespace stalloc::planner
