// What a layer of a transformer allocates, as data: chains of operations with residual connections around them.
//
// Sizes follow Korthikanti et al., Reducing Activation Recomputation in Large Transformer Models (MLSys'23): 16-bit
// activations, fused attention (no score matrix), 4 bytes for statistics. Weight gradients are accumulated in place, as
// Megatron does, so a backward pass allocates gradients of activations only. Pure functions. Bytes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "planner/packing/problem/random.h"
#include "planner/synth/options.h"
#include "proto/model/units.h"

namespace stalloc::planner {

// Until when an operation's output lives.
enum class Keep : std::uint8_t {
  kUntilRead,        // the next operation's forward pass
  kForNextBackward,  // the next operation needs it in its backward pass
  kForOwnBackward,   // this one does
};

struct Operation {
  std::vector<Bytes> scratch = {};  // freed when the forward pass of the operation ends
  std::vector<Bytes> saved = {};    // besides the output; needed by the backward pass
  Bytes output = 0;                 // 0: what came in goes on to the next operation
  Keep keep = Keep::kUntilRead;
  std::vector<Bytes> backward_scratch = {};
  std::vector<Bytes> backward_kept = {};  // freed when the backward pass of the branch ends
  Bytes input_gradient = 0;               // 0: the gradient that came in goes on
  Bytes communication = 0;                // gathered for the operation, in both passes
};

struct Branch {
  std::vector<Operation> operations = {};
  Bytes residual = 0;  // of the sum with the branch's input; 0: no residual connection
};

struct Layer {
  std::string name;
  std::vector<Branch> branches = {};
};

[[nodiscard]] Layer TransformerLayer(const SynthOptions& options, std::uint32_t index, Bytes tokens, Random& random);
[[nodiscard]] Layer EmbeddingLayer(const SynthOptions& options, Bytes tokens);
[[nodiscard]] Layer LossLayer(const SynthOptions& options, Bytes tokens);

// Between two layers and two stages.
[[nodiscard]] Bytes ActivationBytes(const SynthOptions& options, Bytes tokens);

// Weights of one layer, one entry a tensor.
[[nodiscard]] std::vector<Bytes> LayerWeights(const SynthOptions& options);
[[nodiscard]] Bytes EmbeddingWeight(const SynthOptions& options);

// How many tokens each of this rank's experts gets of one micro-batch: dropless, so shares are random and their sum
// over all experts is what was routed.
[[nodiscard]] std::vector<Bytes> ExpertTokens(const SynthOptions& options, Bytes tokens, Random& random);

}  // namespace stalloc::planner
