// A synthetic run of Megatron's kind as a trace: set-up, then iterations of micro-batches through one rank's layers.
//
// What it models: depth of the pipeline, what a layer keeps for its backward pass, temporaries, recomputation, lengths
// that vary, experts with random shares of the tokens, weights, gradients and optimizer state. What it does not: the
// order of frees inside an operation, several devices, evaluation. Deterministic for a seed; pure functions.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "planner/synth/options.h"
#include "proto/model/trace.h"

namespace stalloc::planner {

// With marks of set-up, iterations, micro-batches, layers and optimizer steps. InvalidArgument as CheckSynthOptions, or
// where there would be more than kMaxBlocks blocks.
[[nodiscard]] absl::StatusOr<Trace> Synthesize(const SynthOptions& options);

// The options with as many micro-batches as come closest to `blocks` blocks in all; where that is less than one round
// of the pipeline, with fewer iterations too. InvalidArgument where one round already has too many.
[[nodiscard]] absl::StatusOr<SynthOptions> ScaleToBlocks(SynthOptions options, std::uint64_t blocks);

}  // namespace stalloc::planner
