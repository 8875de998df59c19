// Which pass the calling thread runs. A forward pass again is what activation checkpoints do in a backward pass:
// autograd records what the thread does there. Under create_graph a whole backward pass is such.
//
// Inside the forward function of an autograd function (Python's or C++'s) nothing is recorded. torch's checkpoint
// without reentrance keeps hooks for saved tensors in place meanwhile, which show it; else
// planner/analysis/recomputation.h closes the gap. From any thread.
#pragma once

#include "allocator/runtime/device_runtime.h"

namespace stalloc {

// kOther where torch does not show it.
[[nodiscard]] RunningPass PassOfThread() noexcept;

}  // namespace stalloc
