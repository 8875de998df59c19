#include "planner/synth/options.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace stalloc::planner {
namespace {

absl::Status InRange(const char* name, std::uint32_t value, std::uint32_t least, std::uint32_t greatest) {
  if (value >= least && value <= greatest) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, " must be between ", least, " and ", greatest, ", found ", value));
}

absl::Status Divides(const char* name, std::uint32_t value, const std::string& what, std::uint32_t divisor) {
  if (value % divisor == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, " must be a multiple of ", what, " = ", divisor, ", found ", value));
}

absl::Status CheckModel(const SynthOptions& o) {
  absl::Status status = InRange("layers", o.layers, 1, 1u << 16);
  status.Update(InRange("hidden", o.hidden, 1, kMaxDimension));
  status.Update(InRange("ffn", o.ffn, 1, kMaxDimension));
  status.Update(InRange("heads", o.heads, 1, 4096));
  status.Update(InRange("vocab", o.vocabulary, 1, kMaxDimension));
  status.Update(InRange("batch", o.batch, 1, 4096));
  status.Update(InRange("seq", o.sequence, 1, kMaxDimension));
  status.Update(InRange("seq-min", o.min_sequence, 0, o.sequence));
  return status;
}

absl::Status CheckExperts(const SynthOptions& o) {
  if (o.experts == 0) return absl::OkStatus();
  absl::Status status = InRange("experts", o.experts, 1, 4096);
  status.Update(InRange("top-k", o.top_k, 1, o.experts));
  status.Update(InRange("expert-parallel", o.expert_parallel, 1, o.experts));
  if (status.ok()) status = Divides("experts", o.experts, "expert-parallel", o.expert_parallel);
  return status;
}

absl::Status CheckPipeline(const SynthOptions& o) {
  absl::Status status = InRange("stages", o.stages, 1, 1024);
  status.Update(InRange("chunks", o.chunks, 1, 64));
  status.Update(InRange("micro-batches", o.micro_batches, 1, 1u << 20));
  status.Update(InRange("iterations", o.iterations, 1, 1u << 20));
  if (!status.ok()) return status;
  status.Update(InRange("stage", o.stage, 0, o.stages - 1));
  status.Update(Divides("layers", o.layers, "stages * chunks", o.stages * o.chunks));
  if (o.chunks > 1) {
    status.Update(Divides("micro-batches", o.micro_batches, "stages (for interleaving)", o.stages));
    if (o.schedule == Schedule::kGPipe) {
      status.Update(absl::InvalidArgumentError(absl::StrCat("chunks must be 1 for gpipe, found ", o.chunks)));
    }
  }
  return status;
}

std::vector<SynthPreset> MakePresets() {
  std::vector<SynthPreset> presets;
  presets.push_back({"dense", "32 layers of width 4096, pipeline of 4, 1F1B", {}});

  SynthOptions recompute;
  recompute.recompute = Recompute::kFull;
  recompute.micro_batches = 32;
  presets.push_back({"recompute", "dense with full recomputation", recompute});

  SynthOptions variable;
  variable.min_sequence = 512;
  presets.push_back({"varlen", "dense with 512 to 4096 tokens a micro-batch", variable});

  SynthOptions moe;
  moe.hidden = 2048;
  moe.ffn = 1408;
  moe.heads = 16;
  moe.experts = 32;
  moe.expert_parallel = 4;
  moe.top_k = 4;
  presets.push_back({"moe", "32 experts of width 1408, 8 of them here, dropless", moe});

  SynthOptions interleaved;
  interleaved.chunks = 4;
  presets.push_back({"interleaved", "dense, 4 chunks a rank", interleaved});
  return presets;
}

}  // namespace

absl::Status CheckSynthOptions(const SynthOptions& options) {
  absl::Status status = CheckModel(options);
  status.Update(CheckExperts(options));
  status.Update(CheckPipeline(options));
  return status;
}

const std::vector<SynthPreset>& SynthPresets() {
  static const std::vector<SynthPreset> presets = MakePresets();
  return presets;
}

absl::StatusOr<SynthOptions> FindSynthPreset(const std::string& name) {
  std::vector<std::string> names;
  for (const SynthPreset& preset : SynthPresets()) {
    if (preset.name == name) return preset.options;
    names.push_back(preset.name);
  }
  return absl::NotFoundError(
      absl::StrCat("preset must be one of ", absl::StrJoin(names, ", "), ", found '", name, "'"));
}

}  // namespace stalloc::planner
