// RankRun: one rank's iterations on a tape. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "planner/packing/problem/random.h"
#include "planner/synth/layer_run.h"
#include "planner/synth/options.h"
#include "planner/synth/schedule.h"
#include "planner/synth/tape.h"

namespace stalloc::planner {

class RankRun {
 public:
  // REQUIRES: options that CheckSynthOptions accepts; they outlive this object, and so does the tape.
  RankRun(const SynthOptions& options, Tape& tape);

  void SetUp();
  void Iteration(std::uint32_t index);

 private:
  using ChunkRun = std::vector<LayerRun>;

  void Forward(std::uint32_t chunk, std::uint32_t micro_batch);
  void Backward(std::uint32_t chunk, std::uint32_t micro_batch);
  void StepOptimizer();
  [[nodiscard]] ChunkRun MakeChunk(std::uint32_t chunk, Bytes tokens);
  [[nodiscard]] std::vector<Bytes> Weights() const;
  // For this rank's pipeline, over all stages and chunks.
  [[nodiscard]] bool IsFirst(std::uint32_t chunk) const { return options_.stage == 0 && chunk == 0; }
  [[nodiscard]] bool IsLast(std::uint32_t chunk) const {
    return options_.stage == options_.stages - 1 && chunk == options_.chunks - 1;
  }
  // A buffer that another stage fills.
  Tape::Tensor Receive(Bytes bytes);

  const SynthOptions& options_;
  Tape& tape_;
  Random random_;
  const std::vector<PipelineStep> steps_;
  std::vector<Bytes> tokens_;                                              // of each micro-batch
  std::map<std::pair<std::uint32_t, std::uint32_t>, ChunkRun> in_flight_;  // by chunk and micro-batch
  bool has_optimizer_state_ = false;
};

}  // namespace stalloc::planner
