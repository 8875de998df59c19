// Sizes as functions of the micro-batch: a + b k or b k + c k^2, from two traces of one program with different
// micro-batch sizes.
//
// Requests are paired by phase and order (iterations and phases by number; where the second trace has fewer, its last
// one). A pair gives both numbers of its block exactly: a and b where it grows at most as the micro-batch does, b and c
// where it grows faster, up to the square; a block that is smaller in the larger run counts as fixed. Blocks without a
// partner are taken by class, as with one trace; and so are weights, gradients and the optimizer's state,
// which never grow, and what varies from iteration to iteration: experts hide which is whose partner. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/facts/block_facts.h"
#include "planner/whatif/scaling.h"

namespace stalloc::planner {

struct MicroBatchFit {
  std::vector<BlockPart> parts;  // by allocation of the first trace
  // For what is live at the first trace's peak:
  Bytes unpaired_bytes = 0;
  Bytes fixed_bytes = 0;         // in blocks that are as large in both, and of the model
  Bytes proportional_bytes = 0;  // in blocks that grow as the micro-batch does, within 512 bytes
  Bytes affine_bytes = 0;        // in between
  Bytes square_bytes = 0;        // in blocks that grow faster, up to its square
  Bytes other_peak_bytes = 0;    // of the second trace
};

// `ratio`: the second trace's micro-batch over the first's. REQUIRES: positive and not 1.
[[nodiscard]] MicroBatchFit FitMicroBatch(const DeviceFacts& facts, const DeviceFacts& other, double ratio);

}  // namespace stalloc::planner
