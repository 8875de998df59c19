// How the peak grows with the micro-batch: every block is a part that is fixed, one that grows with it, and one that
// grows with its square, as the scores of all pairs of its rows do. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/facts/block_facts.h"

namespace stalloc::planner {

// Bytes when the micro-batch is k times as large as it was traced: fixed + k x scaling + k^2 x square.
struct BlockPart {
  std::int64_t fixed = 0;
  std::int64_t scaling = 0;
  std::int64_t square = 0;

  [[nodiscard]] double At(double k) const {
    return static_cast<double>(fixed) + k * (static_cast<double>(scaling) + k * static_cast<double>(square));
  }
  bool operator==(const BlockPart&) const = default;
};

// By allocation, from one trace, which shows no squares: activations, what varies, and temporaries of forward and
// backward passes scale as a whole; the rest is fixed.
[[nodiscard]] std::vector<BlockPart> PartsByClass(const DeviceFacts& facts);

// The peak with k times the micro-batch, k >= 0, is the maximum of these: what is live at the moments that are the peak
// for some k, each once, ascending by k. `parts`: by allocation.
using ScalingPoint = BlockPart;
[[nodiscard]] std::vector<ScalingPoint> FindScaling(const DeviceFacts& facts, const std::vector<BlockPart>& parts);

}  // namespace stalloc::planner
