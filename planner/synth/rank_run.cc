#include "planner/synth/rank_run.h"

#include <algorithm>

namespace stalloc::planner {
namespace {

constexpr Bytes kTokenStep = 8;  // lengths that vary are padded to a multiple of it, for tensor cores

Mark MicroBatchMark(Pass pass, std::uint32_t chunk, std::uint32_t index) {
  return {.kind = MarkKind::kMicrobatch,
          .pass = pass,
          .chunk = static_cast<std::int32_t>(chunk),
          .index = static_cast<std::int32_t>(index),
          .name = ""};
}

Mark LayerMark(Pass pass, const LayerRun& layer) {
  return {.kind = MarkKind::kLayer, .pass = pass, .name = layer.name()};
}

Bytes DrawTokens(const SynthOptions& options, Random& random) {
  if (options.min_sequence == 0) return Bytes{options.batch} * options.sequence;
  const Bytes length = options.min_sequence + random.Below(options.sequence - options.min_sequence + 1);
  return options.batch * std::min<Bytes>(RoundUp(length, kTokenStep), options.sequence);
}

}  // namespace

RankRun::RankRun(const SynthOptions& options, Tape& tape)
    : options_(options), tape_(tape), random_(options.seed), steps_(PipelineSteps(options)) {}

std::vector<Bytes> RankRun::Weights() const {
  std::vector<Bytes> weights;
  if (options_.stage == 0) weights.push_back(EmbeddingWeight(options_));
  const std::vector<Bytes> layer = LayerWeights(options_);
  for (std::uint32_t i = 0; i < options_.chunks * options_.layers_per_chunk(); ++i) {
    weights.insert(weights.end(), layer.begin(), layer.end());
  }
  if (options_.stage == options_.stages - 1) weights.push_back(EmbeddingWeight(options_));
  return weights;
}

void RankRun::SetUp() {
  const MarkedScope mark(tape_, {.kind = MarkKind::kInit, .name = ""});
  if (options_.state == ModelState::kAbsent) return;
  Bytes gradients = 0;  // one buffer of 32-bit gradients for all weights
  for (const Bytes weight : Weights()) {
    tape_.Allocate(weight);
    gradients += 2 * weight;
  }
  tape_.Allocate(gradients);
}

void RankRun::Iteration(std::uint32_t index) {
  const MarkedScope mark(tape_, {.kind = MarkKind::kIteration, .index = static_cast<std::int32_t>(index), .name = ""});
  tokens_.clear();
  for (std::uint32_t i = 0; i < options_.micro_batches; ++i) tokens_.push_back(DrawTokens(options_, random_));
  for (const PipelineStep& step : steps_) {
    const MarkedScope micro_batch(tape_, MicroBatchMark(step.pass, step.chunk, step.micro_batch));
    step.pass == Pass::kForward ? Forward(step.chunk, step.micro_batch) : Backward(step.chunk, step.micro_batch);
  }
  StepOptimizer();
}

RankRun::ChunkRun RankRun::MakeChunk(std::uint32_t chunk, Bytes tokens) {
  const std::uint32_t count = options_.layers_per_chunk();
  const std::uint32_t first = (chunk * options_.stages + options_.stage) * count;
  ChunkRun run;
  if (IsFirst(chunk)) run.emplace_back(tape_, EmbeddingLayer(options_, tokens), false);
  for (std::uint32_t i = 0; i < count; ++i) {
    const bool recompute =
        options_.recompute == Recompute::kFull || (options_.recompute == Recompute::kHalf && i < (count + 1) / 2);
    run.emplace_back(tape_, TransformerLayer(options_, first + i, tokens, random_), recompute);
  }
  if (IsLast(chunk)) run.emplace_back(tape_, LossLayer(options_, tokens), false);
  return run;
}

Tape::Tensor RankRun::Receive(Bytes bytes) {
  const Tape::Tensor tensor = tape_.Allocate(bytes, Tape::kCommunication);
  tape_.UsedBy(tensor, Tape::kCompute);
  return tensor;
}

void RankRun::Forward(std::uint32_t chunk, std::uint32_t micro_batch) {
  const Bytes tokens = tokens_[micro_batch];
  constexpr Bytes kTokenBytes = 8;
  Tape::Tensor current =
      IsFirst(chunk) ? tape_.Allocate(kTokenBytes * tokens) : Receive(ActivationBytes(options_, tokens));
  ChunkRun run = MakeChunk(chunk, tokens);
  for (LayerRun& layer : run) {
    const MarkedScope mark(tape_, LayerMark(Pass::kForward, layer));
    current = layer.Forward(current);
  }
  // Sent to the next stage, or the loss, which is logged: either way gone.
  tape_.Free(current);
  in_flight_.emplace(std::pair(chunk, micro_batch), std::move(run));
}

void RankRun::Backward(std::uint32_t chunk, std::uint32_t micro_batch) {
  auto run = in_flight_.extract({chunk, micro_batch});
  Tape::Tensor gradient =
      IsLast(chunk) ? tape_.Allocate(kBlockAlignment) : Receive(ActivationBytes(options_, tokens_[micro_batch]));
  std::vector<LayerRun>& layers = run.mapped();
  for (std::size_t i = layers.size(); i-- > 0;) {
    const MarkedScope mark(tape_, LayerMark(Pass::kBackward, layers[i]));
    gradient = layers[i].Backward(gradient);
  }
  tape_.Free(gradient);
}

void RankRun::StepOptimizer() {
  const MarkedScope mark(tape_, {.kind = MarkKind::kOptimizer, .name = ""});
  // Norms of the gradients, one for each tensor, and their sum.
  std::vector<Tape::Tensor> norms;
  for (std::size_t i = 0; i < Weights().size(); ++i) norms.push_back(tape_.Allocate(kBlockAlignment));
  const Tape::Tensor sum = tape_.Allocate(kBlockAlignment);
  for (const Tape::Tensor norm : norms) tape_.Free(norm);
  tape_.Free(sum);
  if (options_.state != ModelState::kFull || has_optimizer_state_) return;
  has_optimizer_state_ = true;
  for (const Bytes weight : Weights()) {
    for (int copy = 0; copy < 3; ++copy) tape_.Allocate(2 * weight);  // 32-bit weights and two moments
  }
}

}  // namespace stalloc::planner
