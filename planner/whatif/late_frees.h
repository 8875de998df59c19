// Blocks that are held for longer than anything the trace knows of needs them. A trace sees no uses, only allocations,
// frees and marks, so late means late against a mark:
//
//   after the backward   from a micro-batch's forward pass, freed after that micro-batch's backward pass has ended:
//                        autograd has let go of what it saved, so a variable of the program holds it (logits, outputs)
//   after the layer      from a layer's forward pass, freed after that layer's backward pass, in its micro-batch's
//   after the optimizer  gradients that are there until after the optimizer's part: freed right after it, the next
//                        forward pass has their bytes (zero_grad(set_to_none=True) after the step, not before backward)
//   after the iteration  what an iteration without marks of its passes leaves to the next one: gradients, or outputs
//                        and losses in their variables until they are replaced
//   without a backward   from a forward pass of the model that no backward pass follows, kept by its graph: under
//                        torch.no_grad() a layer's blocks go where the next layer of the model ends, or before
//
// Blocks that outlive the next iteration are left out: they are state. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/facts/block_facts.h"

namespace stalloc::planner {

enum class LateKind : std::uint8_t { kAfterBackward, kAfterLayer, kAfterOptimizer, kAfterIteration, kNoBackward };
[[nodiscard]] const char* LateKindName(LateKind kind);  // "after the backward"

struct LateFree {
  std::uint32_t block = 0;  // index into DeviceTrace::allocations
  LateKind kind = LateKind::kAfterBackward;
  std::uint64_t early_event = 0;  // where it could have been freed; the block's free comes later
};

// Ascending by early_event. A block has the earliest of its reasons.
[[nodiscard]] std::vector<LateFree> FindLateFrees(const DeviceFacts& facts);

}  // namespace stalloc::planner
