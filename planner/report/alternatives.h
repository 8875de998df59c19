// What the peak would be if some blocks were smaller, gone, or freed earlier: each alternative is played over the whole
// run, so that a peak which moves elsewhere counts. Bytes. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "planner/report/block_facts.h"
#include "planner/report/late_frees.h"
#include "planner/report/turn_sizes.h"

namespace stalloc::planner {

enum class AlternativeKind : std::uint8_t {
  kRecomputeLayer,   // activations of one layer, or of all that are called alike, are made again in the backward pass
  kRecomputeAll,     // of all layers: a bound
  kDropActivations,  // those of one size, where no layers are known
  kOffloadState,     // optimizer state lives elsewhere
  kShardState,       // over ranks, as ZeRO 1 does
  kShardGradients,   // and gradients: ZeRO 2
  kShardAll,         // and weights: ZeRO 3; a bound, since gathered weights come and go
  kNoOptimizerScratch,  // temporaries of the optimizer: a fused one has none
  kChunk,               // temporaries of one size and phase are made in two halves
  kChunkLoss,           // what is there around the turn from forward to backward alone: logits and loss, in parts
  kFreeLate,            // late_frees.h
};
[[nodiscard]] const char* AlternativeName(AlternativeKind kind);  // "recompute layer"

struct Alternative {
  AlternativeKind kind = AlternativeKind::kRecomputeAll;
  std::string layers;  // kRecomputeLayer: "blocks.3.mlp", or "blocks.*.mlp" of all layers; with what is inside them
  LateKind late = LateKind::kAfterBackward;  // kFreeLate
  std::uint32_t role = 0;                    // kChunk: index into DeviceFacts::roles; kFreeLate: of the most bytes
  Bytes bytes = 0;    // kDropActivations, kChunk: of one block; kChunkLoss, kFreeLate: of the largest at the peak
  double keep = 0;    // share of the blocks' bytes that remains
  Bytes at_peak = 0;  // of these blocks, at the run's peak
  Bytes moved = 0;    // of these blocks, all that were allocated in the peak's iteration
  Bytes peak = 0;     // of the whole run with the alternative
  std::vector<bool> member;                  // kRecomputeLayer: by index into LayerMap::names
  absl::flat_hash_set<PhaseAndSize> places;  // kChunkLoss
};

// By what they save, falling; those that save nothing are left out. `ranks`: to share state among; 0 or 1: none.
[[nodiscard]] std::vector<Alternative> FindAlternatives(const DeviceFacts& facts, std::uint32_t ranks);

}  // namespace stalloc::planner
