// What the peak would be if some blocks were smaller or gone: each alternative is played over the whole run, so that a
// peak which moves elsewhere counts. Bytes. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "planner/report/block_facts.h"

namespace stalloc::planner {

enum class AlternativeKind : std::uint8_t {
  kRecomputeLayer,   // activations of one layer, or of all that are called alike, are made again in the backward pass
  kRecomputeAll,     // of all layers: a bound
  kDropActivations,  // those of one size, where no layers are known
  kOffloadState,     // optimizer state lives elsewhere
  kShardState,       // over the ranks of the run
  kNoOptimizerScratch,  // temporaries of the optimizer: a fused one has none
  kChunk,               // temporaries of one size and phase are made in two halves
};
[[nodiscard]] const char* AlternativeName(AlternativeKind kind);  // "recompute layer"

struct Alternative {
  AlternativeKind kind = AlternativeKind::kRecomputeAll;
  std::string layers;      // kRecomputeLayer: "blocks.3.mlp", or "blocks.*.mlp" of all layers; with what is inside them
  std::uint32_t role = 0;  // kChunk: index into DeviceFacts::roles
  Bytes bytes = 0;         // kDropActivations, kChunk: of one block
  double keep = 0;         // share of the blocks' bytes that remains
  Bytes at_peak = 0;       // of these blocks, at the run's peak
  Bytes peak = 0;          // of the whole run with the alternative
  std::vector<bool> member;  // kRecomputeLayer: by index into LayerMap::names
};

// By what they save, falling; those that save nothing are left out. `world_size`: of the run; 0 or 1: none to share
// with.
[[nodiscard]] std::vector<Alternative> FindAlternatives(const DeviceFacts& facts, std::uint32_t world_size);

// How the peak grows with the micro-batch. What scales: activations, what varies, and temporaries of forward and
// backward passes; the rest is fixed. The peak with k times as much of what scales is the maximum of fixed + k x
// scaling over these points, which are the corners of the upper hull over all moments.
struct ScalingPoint {
  Bytes fixed = 0;
  Bytes scaling = 0;
};
[[nodiscard]] std::vector<ScalingPoint> FindScaling(const DeviceFacts& facts);

}  // namespace stalloc::planner
