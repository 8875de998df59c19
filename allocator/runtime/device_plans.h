// DevicePlans: which device of this process is served from which device's plan.
//
// This rank's own plan serves the devices that it names. Another rank's, a replica's, was traced on that rank's GPU: on
// one node each rank has a GPU of its own, so its plan of one GPU serves the first GPU that this process allocates on.
// Not thread-safe.
#pragma once

#include <utility>

#include "proto/model/plan.h"

namespace stalloc {

class DevicePlans {
 public:
  DevicePlans(Plan plan, bool of_another_rank) : plan_(std::move(plan)), movable_(of_another_rank) {}

  // The device's, null if it has none. The address stays good.
  [[nodiscard]] const DevicePlan* Take(DeviceIndex device);
  // Some device got its plan.
  [[nodiscard]] bool taken() const noexcept { return taken_; }
  [[nodiscard]] const Plan& plan() const noexcept { return plan_; }

 private:
  Plan plan_;
  const bool movable_;
  bool taken_ = false;
};

}  // namespace stalloc
