// Scatter: how much of the idle space of a packing lies elsewhere than in its longest free run.
//
//   scatter = 1 - (sum over ticks of the longest free run) / (sum over ticks of all free bytes)
//
// over the ticks of the cycle (without one, from the first beginning to the last end) and the addresses from 0 to the
// height. 0: whatever is idle at a moment is one range, and a block of its size could live there. Among packings of one
// height the free bytes are the same, so the longest runs alone decide. O(n log n) a packing. Bytes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "planner/packing/problem/problem.h"

namespace stalloc::planner {

// Sums over ticks, in bytes times ticks.
struct Scatter {
  double idle = 0;
  double longest = 0;

  [[nodiscard]] double share() const { return idle <= 0 ? 0.0 : 1.0 - longest / idle; }
};

// Immutable after construction; thread-safe. REQUIRES: the problem outlives it.
class ScatterMeter {
 public:
  explicit ScatterMeter(const Problem& problem, const CycleAxis& cycle = {});

  // REQUIRES: a valid packing.
  [[nodiscard]] Scatter Measure(std::span<const Offset> offsets, Bytes height) const;

 private:
  struct Event {
    Tick tick;
    std::uint32_t block;
    bool begins;
  };

  const Problem& problem_;
  CycleAxis window_;           // ticks that count
  std::vector<Event> events_;  // by tick, ends first
};

}  // namespace stalloc::planner
