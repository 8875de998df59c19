// How the peak grows with the micro-batch: every block is a part that is fixed and a part that grows with it. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/facts/block_facts.h"

namespace stalloc::planner {

// Bytes of a block when the micro-batch is k times as large as it was traced: fixed + k x scaling.
struct BlockPart {
  std::int64_t fixed = 0;
  std::int64_t scaling = 0;
};

// By allocation, from one trace: activations, what varies, and temporaries of forward and backward passes scale as a
// whole; the rest is fixed.
[[nodiscard]] std::vector<BlockPart> PartsByClass(const DeviceFacts& facts);

// The peak with k times the micro-batch is the maximum of fixed + k x scaling over these points, which are the corners
// of the upper hull over all moments. `parts`: by allocation.
struct ScalingPoint {
  std::int64_t fixed = 0;
  std::int64_t scaling = 0;
};
[[nodiscard]] std::vector<ScalingPoint> FindScaling(const DeviceFacts& facts, const std::vector<BlockPart>& parts);

}  // namespace stalloc::planner
