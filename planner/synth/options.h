// What a synthetic training run looks like: model, pipeline, recomputation, and how much of it is traced.
//
// A value; pure functions. Counts are of the whole model or of one rank, as their comments say.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace stalloc::planner {

enum class Schedule : std::uint8_t {
  kOneForwardOneBackward,  // 1F1B; with several chunks a rank: interleaved
  kGPipe,                  // all forward passes, then all backward passes
};
enum class Recompute : std::uint8_t {
  kOff,
  kHalf,  // the first half of each chunk's layers
  kFull,
};
enum class ModelState : std::uint8_t {
  kAbsent,   // activations only
  kWeights,  // and weights and gradients
  kFull,     // and the optimizer's state, which the first step makes
};

struct SynthOptions {
  // The model.
  std::uint32_t layers = 32;
  std::uint32_t hidden = 4096;
  std::uint32_t ffn = 16384;
  std::uint32_t heads = 32;
  std::uint32_t vocabulary = 32000;
  std::uint32_t experts = 0;  // 0: dense
  std::uint32_t top_k = 2;
  std::uint32_t expert_parallel = 1;  // ranks that share the experts; this rank holds the first share

  // One micro-batch.
  std::uint32_t batch = 1;
  std::uint32_t sequence = 4096;
  std::uint32_t min_sequence = 0;  // each micro-batch draws a length from [min_sequence, sequence]; 0: no variation

  // The pipeline.
  std::uint32_t stages = 4;
  std::uint32_t stage = 0;   // of the rank that is traced
  std::uint32_t chunks = 1;  // of layers on one rank: virtual pipeline stages
  Schedule schedule = Schedule::kOneForwardOneBackward;

  Recompute recompute = Recompute::kOff;
  ModelState state = ModelState::kAbsent;
  bool second_stream = false;  // communication buffers on a stream of their own

  std::uint32_t micro_batches = 16;
  std::uint32_t iterations = 2;
  std::uint64_t seed = 1;

  [[nodiscard]] std::uint32_t layers_per_chunk() const { return layers / (stages * chunks); }
  [[nodiscard]] std::uint32_t local_experts() const { return experts / expert_parallel; }
  bool operator==(const SynthOptions&) const = default;
};

// Bounds beyond which a size could overflow or a trace no longer fits into memory.
inline constexpr std::uint32_t kMaxDimension = 1u << 20;
inline constexpr std::uint64_t kMaxBlocks = 50'000'000;

// OK, or InvalidArgument naming the option, what is allowed and the value found.
[[nodiscard]] absl::Status CheckSynthOptions(const SynthOptions& options);

struct SynthPreset {
  std::string name;
  std::string purpose;
  SynthOptions options;
};

[[nodiscard]] const std::vector<SynthPreset>& SynthPresets();
// NotFound lists the names there are.
[[nodiscard]] absl::StatusOr<SynthOptions> FindSynthPreset(const std::string& name);

}  // namespace stalloc::planner
