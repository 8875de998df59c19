// Whether the calling thread runs a forward pass again, as activation checkpoints do in a backward pass: it is in a
// backward pass, and autograd records what it does. Under create_graph a whole backward pass is such.
//
// Inside the forward function of an autograd function (Python's or C++'s) nothing is recorded. torch's checkpoint
// without reentrance keeps hooks for saved tensors in place meanwhile, which tell; else
// planner/analysis/recomputation.h closes the gap. From any thread.
#pragma once

namespace stalloc {

// False where torch does not tell.
[[nodiscard]] bool RunsForwardAgain() noexcept;

}  // namespace stalloc
