// What is there only where a micro-batch turns from forward to backward: logits, and what a loss makes of them.
//
// Layers repeat, so their blocks have sisters of the same size all over the pass. A size belongs to the turn if all of
// its blocks in the forward and the backward pass of one micro-batch come from the last tenth of the one's requests or
// the first tenth of the other's, are freed before that tenth ends, and one of them lives through the turn. Where no
// mark says when a pass ends, the turn reaches from the last layer's forward pass to the end of the first one's
// backward pass: the loss between them is outside of all layers. Pure.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "planner/facts/block_facts.h"

namespace stalloc::planner {

using PhaseAndSize = std::pair<std::uint32_t, Bytes>;  // index into PhaseMap::spans

// A block that stays behind the turn, made before the turn's last block has gone: gradients of the layer that makes the
// logits, and of what it was given. Of a loss in parts they are there from the first part on.
struct TurnGradient {
  std::uint64_t turn_event = 0;  // where the backward pass begins, or at the earliest the turn
  std::uint32_t block = 0;       // index into DeviceTrace::allocations
};

struct TurnBlocks {
  absl::flat_hash_set<PhaseAndSize> sizes;  // in both phases
  std::vector<TurnGradient> gradients;      // ascending by turn_event
};

// Of all micro-batches whose backward pass follows their forward pass. Of an iteration or a set-up without marks of
// micro-batches, where layers tell when the first backward pass begins.
[[nodiscard]] TurnBlocks FindTurnBlocks(const DeviceFacts& facts);

}  // namespace stalloc::planner
