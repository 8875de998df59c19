// In what order one rank of a pipeline runs its forward and backward passes.
//
// 1F1B: Narayanan et al., PipeDream (SOSP'19); interleaved: Narayanan et al., Efficient Large-Scale Language Model
// Training on GPU Clusters (SC'21); GPipe: Huang et al. (NeurIPS'19). Pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/synth/options.h"
#include "proto/model/trace.h"

namespace stalloc::planner {

struct PipelineStep {
  Pass pass = Pass::kForward;  // or kBackward
  std::uint32_t chunk = 0;
  std::uint32_t micro_batch = 0;

  bool operator==(const PipelineStep&) const = default;
};

// One iteration. REQUIRES: options that CheckSynthOptions accepts.
[[nodiscard]] std::vector<PipelineStep> PipelineSteps(const SynthOptions& options);

}  // namespace stalloc::planner
