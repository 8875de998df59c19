// WindowSample: what is alive in a few windows of time, as a smaller instance of its own.
//
// A long run repeats itself: orders of its blocks can be compared on some windows, those with the highest loads, at a
// fraction of the cost. Immutable after construction; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "planner/packing/problem/instance.h"
#include "planner/packing/problem/problem.h"

namespace stalloc::planner {

class WindowSample {
 public:
  // A window around each of the positions, wide enough for about `blocks` blocks in each. REQUIRES: positions of
  // `whole`, at least one.
  WindowSample(const Instance& whole, std::span<const std::uint32_t> centres, std::size_t blocks);

  [[nodiscard]] const Instance& instance() const { return instance_; }

 private:
  Problem problem_;
  Instance instance_;
};

// The position of the greatest load in each of `parts` equal stretches of time, of greatest load first.
[[nodiscard]] std::vector<std::uint32_t> LoadPeaks(const Instance& instance, std::size_t parts);

}  // namespace stalloc::planner
