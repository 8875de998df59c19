#include "planner/synth/layer.h"

#include <numeric>

#include "absl/strings/str_cat.h"

namespace stalloc::planner {
namespace {

constexpr Bytes kHalf = 2;
constexpr Bytes kFloat = 4;

Operation Norm(Bytes tokens, Bytes hidden) {
  return {.saved = {kFloat * tokens, kFloat * tokens},  // mean, reciprocal deviation
          .output = kHalf * tokens * hidden,
          .keep = Keep::kForNextBackward,
          .backward_scratch = {kFloat * hidden, kFloat * hidden},
          .input_gradient = kHalf * tokens * hidden};
}

Operation Linear(Bytes tokens, Bytes inputs, Bytes outputs, Keep keep) {
  return {.output = kHalf * tokens * outputs, .keep = keep, .input_gradient = kHalf * tokens * inputs};
}

// With a gate (SwiGLU) it halves the width.
Operation Activation(Bytes tokens, Bytes inputs, Bytes outputs) {
  return {.output = kHalf * tokens * outputs,
          .keep = Keep::kForNextBackward,
          .backward_scratch = {kHalf * tokens * outputs},
          .input_gradient = kHalf * tokens * inputs};
}

Operation Dropout(Bytes tokens, Bytes hidden) {
  return {.saved = {tokens * hidden}, .output = kHalf * tokens * hidden, .input_gradient = kHalf * tokens * hidden};
}

Operation Rotary(Bytes tokens, Bytes hidden) {
  return {.scratch = {kHalf * tokens * hidden},
          .output = 3 * kHalf * tokens * hidden,
          .keep = Keep::kForNextBackward,
          .backward_scratch = {kHalf * tokens * hidden},
          .input_gradient = 3 * kHalf * tokens * hidden};
}

Operation Attention(Bytes tokens, Bytes hidden, Bytes heads) {
  return {.saved = {kFloat * tokens * heads, kBlockAlignment},  // logarithms of sums, the generator's state
          .output = kHalf * tokens * hidden,
          .keep = Keep::kForOwnBackward,
          .backward_scratch = {kFloat * tokens * heads, kFloat * tokens * hidden},  // row sums, query gradient
          .input_gradient = 3 * kHalf * tokens * hidden};
}

Branch AttentionBranch(const SynthOptions& options, Bytes tokens) {
  const Bytes hidden = options.hidden;
  Branch branch{.residual = ActivationBytes(options, tokens)};
  branch.operations.push_back(Norm(tokens, hidden));
  branch.operations.push_back(Linear(tokens, hidden, 3 * hidden, Keep::kUntilRead));
  branch.operations.back().communication = ActivationBytes(options, tokens);
  branch.operations.push_back(Rotary(tokens, hidden));
  branch.operations.push_back(Attention(tokens, hidden, options.heads));
  branch.operations.push_back(Linear(tokens, hidden, hidden, Keep::kUntilRead));
  branch.operations.push_back(Dropout(tokens, hidden));
  return branch;
}

Branch DenseBranch(const SynthOptions& options, Bytes tokens) {
  const Bytes hidden = options.hidden;
  const Bytes ffn = options.ffn;
  Branch branch{.residual = ActivationBytes(options, tokens)};
  branch.operations.push_back(Norm(tokens, hidden));
  branch.operations.push_back(Linear(tokens, hidden, ffn, Keep::kForNextBackward));
  branch.operations.back().communication = ActivationBytes(options, tokens);
  branch.operations.push_back(Activation(tokens, ffn, ffn));
  branch.operations.push_back(Linear(tokens, ffn, hidden, Keep::kUntilRead));
  branch.operations.push_back(Dropout(tokens, hidden));
  return branch;
}

Operation Router(Bytes tokens, Bytes hidden, Bytes experts, Bytes top_k) {
  return {.scratch = {kFloat * tokens * hidden, kFloat * tokens * experts},
          .saved = {kFloat * tokens * experts, kFloat * tokens * top_k, 8 * tokens * top_k, 8 * experts},
          .backward_scratch = {kFloat * tokens * experts, kHalf * tokens * hidden}};
}

Operation Permute(Bytes tokens, Bytes routed, Bytes hidden) {
  return {.scratch = {8 * routed},
          .saved = {8 * routed},
          .output = kHalf * routed * hidden,
          .input_gradient = kHalf * tokens * hidden,
          .communication = kHalf * routed * hidden};
}

// One expert of a loop over experts; it leaves its own output for Unpermute to gather.
Operation Expert(Bytes tokens, Bytes hidden, Bytes ffn) {
  const Bytes narrow = kHalf * tokens * hidden;
  const Bytes wide = kHalf * tokens * ffn;
  return {.saved = {narrow, 2 * wide, wide, narrow},
          .backward_scratch = {narrow, wide, 2 * wide},
          .backward_kept = {narrow}};
}

Operation Unpermute(Bytes tokens, Bytes routed, Bytes hidden) {
  return {.scratch = {kHalf * routed * hidden},
          .saved = {kHalf * routed},
          .output = kHalf * tokens * hidden,
          .input_gradient = kHalf * routed * hidden,
          .communication = kHalf * routed * hidden};
}

Branch ExpertBranch(const SynthOptions& options, Bytes tokens, Random& random) {
  const Bytes hidden = options.hidden;
  const std::vector<Bytes> shares = ExpertTokens(options, tokens, random);
  const Bytes routed = std::accumulate(shares.begin(), shares.end(), Bytes{0});
  Branch branch{.residual = ActivationBytes(options, tokens)};
  branch.operations.push_back(Norm(tokens, hidden));
  branch.operations.push_back(Router(tokens, hidden, options.experts, options.top_k));
  branch.operations.push_back(Permute(tokens, routed, hidden));
  for (const Bytes share : shares) branch.operations.push_back(Expert(share, hidden, options.ffn));
  branch.operations.push_back(Unpermute(tokens, routed, hidden));
  return branch;
}

}  // namespace

Bytes ActivationBytes(const SynthOptions& options, Bytes tokens) { return kHalf * tokens * options.hidden; }

Layer TransformerLayer(const SynthOptions& options, std::uint32_t index, Bytes tokens, Random& random) {
  Layer layer{.name = absl::StrCat("layer", index)};
  layer.branches.push_back(AttentionBranch(options, tokens));
  layer.branches.push_back(options.experts == 0 ? DenseBranch(options, tokens) : ExpertBranch(options, tokens, random));
  return layer;
}

Layer EmbeddingLayer(const SynthOptions& options, Bytes tokens) {
  Branch branch;
  branch.operations.push_back({.saved = {8 * tokens}, .output = ActivationBytes(options, tokens)});
  branch.operations.push_back(Dropout(tokens, options.hidden));
  return {.name = "embedding", .branches = {branch}};
}

Layer LossLayer(const SynthOptions& options, Bytes tokens) {
  const Bytes logits = tokens * options.vocabulary;
  Branch branch;
  branch.operations.push_back(Norm(tokens, options.hidden));
  branch.operations.push_back(Linear(tokens, options.hidden, options.vocabulary, Keep::kUntilRead));
  branch.operations.push_back({.scratch = {kFloat * tokens},
                               .saved = {kFloat * logits, 8 * tokens},  // softmax, labels
                               .output = kFloat * tokens,
                               .backward_scratch = {kFloat * tokens},
                               .input_gradient = kHalf * logits});
  return {.name = "loss", .branches = {branch}};
}

std::vector<Bytes> LayerWeights(const SynthOptions& options) {
  const Bytes hidden = options.hidden;
  const Bytes ffn = options.ffn;
  std::vector<Bytes> weights = {kHalf * hidden, kHalf * hidden * 3 * hidden, kHalf * hidden * hidden, kHalf * hidden};
  if (options.experts == 0) {
    weights.push_back(kHalf * hidden * ffn);
    weights.push_back(kHalf * ffn * hidden);
    return weights;
  }
  weights.push_back(kFloat * hidden * options.experts);
  for (std::uint32_t i = 0; i < options.local_experts(); ++i) {
    weights.push_back(kHalf * hidden * 2 * ffn);
    weights.push_back(kHalf * ffn * hidden);
  }
  return weights;
}

Bytes EmbeddingWeight(const SynthOptions& options) { return kHalf * options.vocabulary * Bytes{options.hidden}; }

std::vector<Bytes> ExpertTokens(const SynthOptions& options, Bytes tokens, Random& random) {
  std::vector<double> weights(options.experts);
  // Triangular about 1: a busy expert gets some times what an idle one does.
  for (double& weight : weights) weight = random.Unit() + random.Unit();
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  const Bytes routed = tokens * options.top_k * options.expert_parallel;
  std::vector<Bytes> shares;
  double before = 0;
  for (std::uint32_t i = 0; i < options.local_experts(); ++i) {
    // Differences of rounded running sums: over all experts they add up exactly.
    const double after = before + weights[i];
    const auto count = [&](double part) { return static_cast<Bytes>(part / sum * static_cast<double>(routed)); };
    shares.push_back(count(after) - count(before));
    before = after;
  }
  return shares;
}

}  // namespace stalloc::planner
