// Blocks that are live only between a micro-batch's forward and backward pass: logits, and what a loss makes of them.
//
// Layers repeat, so their blocks have sisters of the same size all over the pass. A size belongs to the loss if all of
// its blocks in the forward and the backward pass of one micro-batch come from the last tenth of the one's requests or
// the first tenth of the other's, are freed before that tenth ends, and one of them lives from the one pass into the
// other. Where no mark says when a pass ends, the loss reaches from the last layer's forward pass to the end of the
// first one's backward pass: the loss between them is outside of all layers. Pure.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "planner/facts/block_facts.h"

namespace stalloc::planner {

using PhaseAndSize = std::pair<std::uint32_t, Bytes>;  // index into PhaseMap::spans

// A block that stays after the loss, made before the loss's last block has gone: gradients of the layer that makes the
// logits, and of what it was given. Of a loss in parts they are there from the first part on.
struct LossGradient {
  std::uint64_t loss_event = 0;  // where the backward pass begins, or at the earliest the loss
  std::uint32_t block = 0;       // index into DeviceTrace::allocations
};

struct LossBlocks {
  absl::flat_hash_set<PhaseAndSize> sizes;  // in both phases
  std::vector<LossGradient> gradients;      // ascending by loss_event
};

// For all micro-batches whose backward pass follows their forward pass. Of an iteration or a set-up without marks of
// micro-batches, where layers show when the first backward pass begins.
[[nodiscard]] LossBlocks FindLossBlocks(const DeviceFacts& facts);

}  // namespace stalloc::planner
