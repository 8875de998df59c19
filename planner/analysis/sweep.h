// The allocations and frees of one device in the order in which they happened.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "planner/analysis/lifetimes.h"

namespace stalloc::planner {

struct SweepStep {
  std::uint32_t event = 0;       // index into Trace::events
  std::uint32_t allocation = 0;  // index into DeviceTrace::allocations
  bool is_free = false;
};

// The device must outlive it.
class Sweep {
 public:
  explicit Sweep(const DeviceTrace& device) : allocations_(device.allocations), frees_(device.frees) {}

  // False after the last step.
  [[nodiscard]] bool Next(SweepStep* step) {
    const std::uint32_t allocated = next_ < allocations_.size() ? allocations_[next_].event : kNever;
    const std::uint32_t freed = next_free_ < frees_.size() ? allocations_[frees_[next_free_]].free_event : kNever;
    if (allocated == freed) return false;  // both kNever: no event is two
    *step = freed < allocated ? SweepStep{freed, frees_[next_free_++], true} : SweepStep{allocated, next_++, false};
    return true;
  }

 private:
  const std::vector<Allocation>& allocations_;
  const std::vector<std::uint32_t>& frees_;
  std::uint32_t next_ = 0;
  std::size_t next_free_ = 0;
};

// The allocation after which most is live, of all blocks; the first of equals, where iterations reach it in these. All
// zero for a device without allocations.
struct PeakMoment {
  Bytes live_bytes = 0;
  std::uint32_t event = 0;
  std::uint32_t allocation = 0;  // index into DeviceTrace::allocations
};
[[nodiscard]] inline PeakMoment FindPeakMoment(const DeviceTrace& device) {
  PeakMoment peak;
  Bytes live = 0;
  bool was_in_set_up = true;
  Sweep sweep(device);
  for (SweepStep step; sweep.Next(&step);) {
    const Bytes bytes = device.allocations[step.allocation].bytes;
    live = step.is_free ? live - bytes : live + bytes;
    if (step.is_free) continue;
    const bool is_in_set_up = device.allocations[step.allocation].segment == 0;
    const bool moves_on = was_in_set_up && !is_in_set_up && live == peak.live_bytes;
    if (live <= peak.live_bytes && !moves_on) continue;
    peak = {live, step.event, step.allocation};
    was_in_set_up = is_in_set_up;
  }
  return peak;
}
[[nodiscard]] inline Bytes PeakLiveBytes(const DeviceTrace& device) { return FindPeakMoment(device).live_bytes; }

}  // namespace stalloc::planner
