// What is there only where a micro-batch turns from forward to backward: logits, and what a loss makes of them.
//
// Layers repeat, so their blocks have sisters of the same size all over the pass. A size belongs to the turn if all of
// its blocks in the forward and the backward pass of one micro-batch come from the last tenth of the one's requests or
// the first tenth of the other's, are freed before that tenth ends, and one of them lives through the turn. Pure.
#pragma once

#include <cstdint>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "planner/report/block_facts.h"

namespace stalloc::planner {

using PhaseAndSize = std::pair<std::uint32_t, Bytes>;  // index into PhaseMap::spans

// Of all micro-batches whose backward pass follows their forward pass; both phases of a size are in it.
[[nodiscard]] absl::flat_hash_set<PhaseAndSize> FindTurnSizes(const DeviceFacts& facts);

}  // namespace stalloc::planner
