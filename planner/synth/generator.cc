#include "planner/synth/generator.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "planner/synth/rank_run.h"
#include "planner/synth/tape.h"

namespace stalloc::planner {
namespace {

// Blocks of a run, without making it: every round of the pipeline requests as many as any other. What an expert
// requests for depends on whether it got any token, so with experts this is an estimate.
struct BlockCounts {
  std::uint64_t set_up = 0;     // and what the first step leaves
  std::uint64_t round = 0;      // of Granularity() micro-batches
  std::uint64_t iteration = 0;  // besides its rounds

  [[nodiscard]] std::uint64_t Of(std::uint64_t rounds, std::uint64_t iterations) const {
    return set_up + iterations * (iteration + rounds * round);
  }
};

// Micro-batches come in multiples of it.
std::uint32_t Granularity(const SynthOptions& options) { return options.chunks > 1 ? options.stages : 1; }

std::uint64_t CountBlocks(SynthOptions options, std::uint32_t rounds, std::uint32_t iterations) {
  options.micro_batches = rounds * Granularity(options);
  Tape tape(options.second_stream);
  RankRun run(options, tape);
  run.SetUp();
  for (std::uint32_t i = 0; i < iterations; ++i) run.Iteration(i);
  return tape.allocations();
}

BlockCounts Measure(const SynthOptions& options) {
  const std::uint64_t one = CountBlocks(options, 1, 1);
  BlockCounts counts;
  counts.round = CountBlocks(options, 2, 1) - one;
  const std::uint64_t second = CountBlocks(options, 1, 2) - one;
  counts.iteration = second - std::min(second, counts.round);
  counts.set_up = one - std::min(one, second);
  return counts;
}

Fingerprint MakeFingerprint(const SynthOptions& options) {
  Fingerprint fingerprint;
  fingerprint.device_name = "synthetic";
  fingerprint.world_size = options.stages;
  fingerprint.rank = options.stage;
  fingerprint.trace_mode = "synthetic";
  return fingerprint;
}

absl::Status TooMany(std::uint64_t blocks) {
  return absl::InvalidArgumentError(absl::StrCat("a run must have at most ", kMaxBlocks, " blocks, found about ",
                                                 blocks, ": request fewer micro-batches or iterations"));
}

}  // namespace

absl::StatusOr<Trace> Synthesize(const SynthOptions& options) {
  if (absl::Status status = CheckSynthOptions(options); !status.ok()) return status;
  const std::uint64_t blocks = Measure(options).Of(options.micro_batches / Granularity(options), options.iterations);
  if (blocks > kMaxBlocks) return TooMany(blocks);
  Tape tape(options.second_stream);
  RankRun run(options, tape);
  run.SetUp();
  for (std::uint32_t i = 0; i < options.iterations; ++i) run.Iteration(i);
  Trace trace = tape.Take();
  trace.fingerprint = MakeFingerprint(options);
  return trace;
}

absl::StatusOr<SynthOptions> ScaleToBlocks(SynthOptions options, std::uint64_t blocks) {
  options.micro_batches = Granularity(options);
  if (absl::Status status = CheckSynthOptions(options); !status.ok()) return status;
  if (blocks > kMaxBlocks) return TooMany(blocks);
  const BlockCounts counts = Measure(options);
  const std::uint64_t least = counts.Of(1, 1);
  if (blocks < least) {
    return absl::InvalidArgumentError(
        absl::StrCat("blocks must be at least ", least, " for this model (one round of the pipeline), found ", blocks));
  }
  const std::uint64_t shortest = counts.iteration + counts.round;
  options.iterations =
      static_cast<std::uint32_t>(std::min<std::uint64_t>(options.iterations, (blocks - counts.set_up) / shortest));
  const std::uint64_t of_one = (blocks - counts.set_up) / options.iterations - counts.iteration;
  const std::uint64_t rounds = std::max<std::uint64_t>(1, (of_one + counts.round / 2) / counts.round);
  options.micro_batches = static_cast<std::uint32_t>(rounds * Granularity(options));
  return options;
}

}  // namespace stalloc::planner
