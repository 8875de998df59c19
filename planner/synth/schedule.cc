#include "planner/synth/schedule.h"

#include <algorithm>

namespace stalloc::planner {
namespace {

std::vector<PipelineStep> GPipe(std::uint32_t micro_batches) {
  std::vector<PipelineStep> steps;
  for (std::uint32_t i = 0; i < micro_batches; ++i) steps.push_back({Pass::kForward, 0, i});
  for (std::uint32_t i = micro_batches; i-- > 0;) steps.push_back({Pass::kBackward, 0, i});
  return steps;
}

// The k-th forward or backward pass: groups of `stages` micro-batches go through one chunk after the other, backward
// through the chunks in reverse.
PipelineStep VirtualStep(const SynthOptions& options, Pass pass, std::uint32_t k) {
  const std::uint32_t group = options.stages * options.chunks;
  const std::uint32_t chunk = k % group / options.stages;
  return {pass, pass == Pass::kForward ? chunk : options.chunks - 1 - chunk,
          k / group * options.stages + k % options.stages};
}

std::uint32_t WarmUp(const SynthOptions& options) {
  const std::uint32_t after = options.stages - options.stage - 1;
  if (options.chunks == 1) return after;
  return 2 * after + (options.chunks - 1) * options.stages;
}

std::vector<PipelineStep> OneForwardOneBackward(const SynthOptions& options) {
  const auto step = [&](Pass pass, std::uint32_t k) {
    return options.chunks == 1 ? PipelineStep{pass, 0, k} : VirtualStep(options, pass, k);
  };
  const std::uint32_t all = options.micro_batches * options.chunks;
  const std::uint32_t warm_up = std::min(all, WarmUp(options));
  std::vector<PipelineStep> steps;
  for (std::uint32_t k = 0; k < warm_up; ++k) steps.push_back(step(Pass::kForward, k));
  for (std::uint32_t k = warm_up; k < all; ++k) {
    steps.push_back(step(Pass::kForward, k));
    steps.push_back(step(Pass::kBackward, k - warm_up));
  }
  for (std::uint32_t k = all - warm_up; k < all; ++k) steps.push_back(step(Pass::kBackward, k));
  return steps;
}

}  // namespace

std::vector<PipelineStep> PipelineSteps(const SynthOptions& options) {
  return options.schedule == Schedule::kGPipe ? GPipe(options.micro_batches) : OneForwardOneBackward(options);
}

}  // namespace stalloc::planner
