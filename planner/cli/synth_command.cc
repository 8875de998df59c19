// `stalloc-planner synth`.
#include <array>
#include <cstdint>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/types/optional.h"
#include "planner/cli/commands.h"
#include "planner/cli/flags.h"
#include "planner/packing/problem/csv.h"
#include "planner/packing/problem/problem.h"
#include "planner/synth/generator.h"
#include "planner/synth/options.h"
#include "planner/synth/trace_problem.h"
#include "proto/codec/trace_writer.h"

using OptionalCount = absl::optional<std::uint32_t>;

ABSL_FLAG(std::string, preset, "dense", "`NAME` of the run that the other flags change.");
ABSL_FLAG(OptionalCount, layers, absl::nullopt, "Layers of the whole model.");
ABSL_FLAG(OptionalCount, hidden, absl::nullopt, "Width of the model.");
ABSL_FLAG(OptionalCount, ffn, absl::nullopt, "Inner width of the feed-forward part, or of one expert.");
ABSL_FLAG(OptionalCount, heads, absl::nullopt, "Attention heads.");
ABSL_FLAG(OptionalCount, vocab, absl::nullopt, "Tokens of the vocabulary: size of the logits on the last stage.");
ABSL_FLAG(OptionalCount, batch, absl::nullopt, "Sequences in a micro-batch.");
ABSL_FLAG(OptionalCount, seq, absl::nullopt, "Tokens in a sequence, at most.");
ABSL_FLAG(OptionalCount, seq_min, absl::nullopt,
          "Each micro-batch draws its length from seq-min to seq; 0: all have seq.");
ABSL_FLAG(OptionalCount, experts, absl::nullopt, "Experts of a layer; 0: a dense model.");
ABSL_FLAG(OptionalCount, top_k, absl::nullopt, "Experts that a token is sent to; none is dropped.");
ABSL_FLAG(OptionalCount, expert_parallel, absl::nullopt, "Ranks that share the experts.");
ABSL_FLAG(OptionalCount, stages, absl::nullopt, "Pipeline stages.");
ABSL_FLAG(OptionalCount, stage, absl::nullopt, "The stage that is traced, from 0.");
ABSL_FLAG(OptionalCount, chunks, absl::nullopt, "Chunks of layers on one stage (virtual pipeline).");
ABSL_FLAG(std::string, schedule, "", "`NAME`: 1f1b, interleaved (needs chunks above 1) or gpipe.");
ABSL_FLAG(std::string, recompute, "", "`NAME`: none, half (the first half of a chunk's layers) or full.");
ABSL_FLAG(std::string, state, "",
          "`WHAT` lives besides activations: none, weights (and gradients) or full (optimizer too).");
ABSL_FLAG(bool, second_stream, false, "Communication buffers are on a stream of their own.");
ABSL_FLAG(OptionalCount, micro_batches, absl::nullopt, "Micro-batches of an iteration.");
ABSL_FLAG(OptionalCount, iterations, absl::nullopt, "Iterations that are traced.");
ABSL_FLAG(absl::optional<std::uint64_t>, blocks, absl::nullopt,
          "About so many blocks: sets the micro-batches, and takes iterations away where that is not enough.");

namespace stalloc::planner {
namespace {

template <typename Value>
struct Choice {
  const char* name;
  Value value;
};

// Leaves `value` alone where the flag is empty.
template <typename Value, std::size_t kCount>
absl::Status Choose(const char* flag, const std::string& text, const std::array<Choice<Value>, kCount>& choices,
                    Value& value) {
  if (text.empty()) return absl::OkStatus();
  std::string names;
  for (const Choice<Value>& choice : choices) {
    if (text == choice.name) {
      value = choice.value;
      return absl::OkStatus();
    }
    absl::StrAppend(&names, names.empty() ? "" : ", ", choice.name);
  }
  return absl::InvalidArgumentError(absl::StrCat("--", flag, " must be one of ", names, ", found '", text, "'"));
}

void SetCounts(SynthOptions& options) {
  const auto set = [](const absl::Flag<OptionalCount>& flag, std::uint32_t& value) {
    value = absl::GetFlag(flag).value_or(value);
  };
  set(FLAGS_layers, options.layers);
  set(FLAGS_hidden, options.hidden);
  set(FLAGS_ffn, options.ffn);
  set(FLAGS_heads, options.heads);
  set(FLAGS_vocab, options.vocabulary);
  set(FLAGS_batch, options.batch);
  set(FLAGS_seq, options.sequence);
  set(FLAGS_seq_min, options.min_sequence);
  set(FLAGS_experts, options.experts);
  set(FLAGS_top_k, options.top_k);
  set(FLAGS_expert_parallel, options.expert_parallel);
  set(FLAGS_stages, options.stages);
  set(FLAGS_stage, options.stage);
  set(FLAGS_chunks, options.chunks);
  set(FLAGS_micro_batches, options.micro_batches);
  set(FLAGS_iterations, options.iterations);
  options.second_stream = absl::GetFlag(FLAGS_second_stream);
  options.seed = absl::GetFlag(FLAGS_seed);
}

absl::Status SetChoices(SynthOptions& options) {
  constexpr std::array kSchedules = {Choice<Schedule>{"1f1b", Schedule::kOneForwardOneBackward},
                                     Choice<Schedule>{"interleaved", Schedule::kOneForwardOneBackward},
                                     Choice<Schedule>{"gpipe", Schedule::kGPipe}};
  constexpr std::array kRecomputes = {Choice<Recompute>{"none", Recompute::kOff},
                                      Choice<Recompute>{"half", Recompute::kHalf},
                                      Choice<Recompute>{"full", Recompute::kFull}};
  constexpr std::array kStates = {Choice<ModelState>{"none", ModelState::kAbsent},
                                  Choice<ModelState>{"weights", ModelState::kWeights},
                                  Choice<ModelState>{"full", ModelState::kFull}};
  const std::string schedule = absl::GetFlag(FLAGS_schedule);
  absl::Status status = Choose("schedule", schedule, kSchedules, options.schedule);
  status.Update(Choose("recompute", absl::GetFlag(FLAGS_recompute), kRecomputes, options.recompute));
  status.Update(Choose("state", absl::GetFlag(FLAGS_state), kStates, options.state));
  if ((schedule == "interleaved" && options.chunks < 2) || (schedule == "1f1b" && options.chunks > 1)) {
    status.Update(absl::InvalidArgumentError(absl::StrCat(
        "--schedule=interleaved goes with --chunks above 1, 1f1b with 1: found ", schedule, " and ", options.chunks)));
  }
  return status;
}

absl::StatusOr<SynthOptions> OptionsOfFlags() {
  absl::StatusOr<SynthOptions> options = FindSynthPreset(absl::GetFlag(FLAGS_preset));
  if (!options.ok()) return options;
  SetCounts(*options);
  if (absl::Status status = SetChoices(*options); !status.ok()) return status;
  if (const auto blocks = absl::GetFlag(FLAGS_blocks); blocks.has_value()) return ScaleToBlocks(*options, *blocks);
  if (absl::Status status = CheckSynthOptions(*options); !status.ok()) return status;
  return options;
}

struct SynthSummary {
  std::size_t blocks = 0;
  std::size_t events = 0;
  Bytes lower_bound = 0;
  SynthOptions options;
};

void PrintSummary(const SynthSummary& summary, const std::string& path, Streams streams) {
  if (absl::GetFlag(FLAGS_json)) {
    streams.out << absl::StrFormat(
        "{\"blocks\": %d, \"events\": %d, \"lower_bound\": %d, \"iterations\": %d, \"micro_batches\": %d, \"seed\": "
        "%d}\n",
        summary.blocks, summary.events, summary.lower_bound, summary.options.iterations, summary.options.micro_batches,
        summary.options.seed);
    return;
  }
  streams.out << absl::StrFormat("%d blocks, %d events, peak %d bytes; iterations %d of %d micro-batches: %s\n",
                                 summary.blocks, summary.events, summary.lower_bound, summary.options.iterations,
                                 summary.options.micro_batches, path);
}

int RunSynth(const std::vector<std::string>& positional, Streams streams) {
  const std::string path = absl::GetFlag(FLAGS_output);
  const bool is_csv = absl::EndsWith(path, ".csv");
  if (!positional.empty() || !(is_csv || absl::EndsWith(path, ".trace"))) {
    return FailUsage("synth",
                     absl::StrCat("expected --output=FILE.trace or FILE.csv and no other argument, found '",
                                  positional.empty() ? path : positional[0], "'"),
                     streams);
  }
  const absl::StatusOr<SynthOptions> options = OptionsOfFlags();
  if (!options.ok()) return FailUsage("synth", std::string(options.status().message()), streams);
  const absl::StatusOr<Trace> trace = Synthesize(*options);
  if (!trace.ok()) return FailUsage("synth", std::string(trace.status().message()), streams);
  const Problem problem = ProblemOfTrace(*trace);
  const absl::Status written = is_csv ? WriteCsvFile(problem, {}, path) : WriteTraceFile(path, *trace);
  if (!written.ok()) return FailInput("synth", written, streams);
  PrintSummary({problem.blocks.size(), trace->events.size(), LoadBound(problem), *options}, path, streams);
  return kExitOk;
}

std::string Details() {
  std::string details =
      "Writes the trace of one rank, which `plan` takes as DIR/trace/rank0000N.trace (N: the stage), or all its\n"
      "blocks as an instance for `pack`. The same flags give the same file. Presets:\n";
  for (const SynthPreset& preset : SynthPresets()) {
    absl::StrAppend(&details, "  ", preset.name, std::string(13 - preset.name.size(), ' '), preset.purpose, "\n");
  }
  return details;
}

}  // namespace

const Command& SynthCommand() {
  static const Command command{
      {"synth",
       "",
       "Makes a synthetic trace of a training run: a Megatron-like model in a pipeline.",
       Details(),
       {"output",    "preset", "blocks",          "micro_batches", "iterations", "seed",   "layers",
        "hidden",    "ffn",    "heads",           "vocab",         "batch",      "seq",    "seq_min",
        "experts",   "top_k",  "expert_parallel", "stages",        "stage",      "chunks", "schedule",
        "recompute", "state",  "second_stream",   "json"},
       "synth --preset=dense --layers=8 --output=run1/trace/rank00000.trace\n"},
      RunSynth};
  return command;
}

}  // namespace stalloc::planner
