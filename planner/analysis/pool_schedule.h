// When the bytes of graphs' pools are needed, in the time of the cycle: a launch between requests t - 1 and t of its
// script needs its bytes at [t - 1, t), and what it leaves to another graph until that one's launch. All typical
// iterations count; a fence may hide launches of any graph. If their launches do not come in the same order in all of
// them, what is carried is not lendable.
//
//   requests   |-----|-----|-----|-----|-----|        tick t is request t
//   launches              A         B
//   A's dead              [--)                        what lives at t - 1 may live in the launch
//   carried               [------------)
//
// Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/analysis/byte_ranges.h"
#include "planner/analysis/lendable_pools.h"
#include "planner/analysis/steady.h"
#include "planner/packing/problem/problem.h"

namespace stalloc::planner {

struct PoolSchedule {
  // What is needed since before the cycle begins there: no launch comes in between.
  static constexpr Tick kBefore = -1;
  struct Need {
    Lifetime life;            // in the cycle: what passes its end has another one, from kBefore on
    std::uint32_t bytes = 0;  // index into `needed`
    bool operator==(const Need&) const = default;
  };

  std::vector<LentPool> pools;
  std::vector<ByteRange> lendable;  // ascending, each inside of one pool; multiples of kBlockAlignment
  std::vector<ByteRanges> needed;
  std::vector<Need> needs;             // ascending, each once
  std::vector<std::uint64_t> moments;  // events of launches and of fences' begins, ascending
  // Of all the trace, by its events: for what comes before the cycle. Ascending.
  std::vector<Need> in_trace;
  std::uint64_t filled = 0;  // event from which on pools have all that they will have
  bool in_order = true;

  [[nodiscard]] bool empty() const { return lendable.empty(); }
};

[[nodiscard]] PoolSchedule SchedulePools(const LendablePools& pools, const Segmentation& segmentation,
                                         const DeviceTrace& device, const SteadyModel& model);

}  // namespace stalloc::planner
