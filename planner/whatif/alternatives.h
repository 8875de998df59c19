// What the peak would be if some blocks were smaller, gone, or freed earlier: each alternative is played over the whole
// run, so that a peak which moves elsewhere counts. Bytes. Pure.
//
// Each is something that a program can be changed to do. Where the trace lacks data the worse is taken: such an
// alternative saves at least what is said.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "planner/facts/block_facts.h"
#include "planner/whatif/late_frees.h"
#include "planner/whatif/loss_sizes.h"

namespace stalloc::planner {

enum class AlternativeKind : std::uint8_t {
  kRecomputeLayer,      // one layer, or each of all that are called alike, recomputed: recomputation.h
  kOffloadLayer,        // the same blocks on the host meanwhile
  kOffloadState,        // optimizer state lives elsewhere
  kShardState,          // over ranks, as ZeRO 1 does
  kShardGradients,      // and gradients: ZeRO 2
  kShardAll,            // and weights: ZeRO 3; a bound, since gathered weights come and go
  kNoOptimizerScratch,  // temporaries of the optimizer: a fused one has none
  kChunkLoss,           // what is live only between forward and backward: logits and loss, in parts
  kFreeLate,            // late_frees.h
};
[[nodiscard]] const char* AlternativeName(AlternativeKind kind);  // "recompute layer"

struct Alternative {
  AlternativeKind kind = AlternativeKind::kRecomputeLayer;
  std::string layers;  // kRecomputeLayer, kOffloadLayer: "blocks.3.mlp", or "blocks.*.mlp" of all layers
  LateKind late = LateKind::kAfterBackward;  // kFreeLate
  std::uint32_t role = 0;                    // kFreeLate: index into DeviceFacts::roles, of the most bytes
  Bytes bytes = 0;                           // kChunkLoss, kFreeLate: of the largest block at the peak
  double keep = 0;                           // share of the blocks' bytes that remains
  bool at_least = false;                     // it may save more
  bool leaves = false;                       // kRecomputeLayer: Recomputation::leaves
  Bytes at_peak = 0;                         // of these blocks, at the run's peak
  Bytes moved = 0;                           // of these blocks, all that were allocated in the peak's iteration
  Bytes peak = 0;                            // of the whole run with the alternative
  LossBlocks loss;                           // kChunkLoss
};

// By what they save, falling; those that save nothing are left out. `ranks`: to share state among; 0 or 1: none.
[[nodiscard]] std::vector<Alternative> FindAlternatives(const DeviceFacts& facts, std::uint32_t ranks);

}  // namespace stalloc::planner
