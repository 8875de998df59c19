// Casts of weights: copies in half the bytes that passes under autocast make, and their gradients. Neither grows with
// the micro-batch.
//
// A trace does not have the operations that request blocks. The end of a cast's gradient identifies it: the backward
// pass requests the gradient of the weight, which has a name and twice the bytes, and frees that of the cast before it
// requests anything else.
//
//   cast                    |-------------------- - - -|
//   its gradient                     |-------|
//   the weight's gradient                   |----------------
//
// For each such size the forward pass before has as many casts as there are weights. Where more blocks are as large, so
// many of them are taken: those that outlive the backward pass, if an open autocast keeps all, else those that go with
// a gradient, and then those that go last before the pass. A later micro-batch adds to the gradient: its
// block of twice the bytes has no name and goes, and counts with the casts. Where the gradients of other casts (of a
// layer's input) are as large, those without a name are distinguished by their order in the first micro-batch's pass.
// Without names of gradients nothing is found. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/analysis/lifetimes.h"

namespace stalloc::planner {

// Allocation::event of each block, ascending.
[[nodiscard]] std::vector<std::uint32_t> FindWeightCasts(const DeviceTrace& device);

}  // namespace stalloc::planner
