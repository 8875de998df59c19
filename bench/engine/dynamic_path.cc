// What the engine costs where a plan does not know it all: recorded runs with experts, planned from three iterations;
// the fourth is served, over and over.
//
//   TimeDynamic   each call timed, the clock's own time taken off: median and 99th percentile of the requests that get
//                 their slots (planned), that get room beside the slots (dynamic), the same in an evaluation (fenced),
//                 and of each with its free (pair)
#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "allocator/backing/chunk_bytes.h"
#include "allocator/engine/plan_engine.h"
#include "bench/replay/experiment.h"
#include "bench/replay/recording.h"
#include "bench/replay/runs.h"
#include "planner/trial/instant_fence.h"

namespace stalloc::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kRounds = 12;  // of the served iteration
constexpr Bytes kGrowth = Bytes{2} << 20;

std::byte* const kBase = reinterpret_cast<std::byte*>(std::uintptr_t{1} << 40);

// A run and its plan; the iterations from `served` on are timed.
struct PlannedRun {
  std::string error = {};
  ComposedRun run = {};
  DevicePlan plan = {};
  std::size_t served = 0;
};

PlannedRun Prepare(const std::string& name) {
  PlannedRun prepared;
  absl::StatusOr<Recording> recording = ReadRecording(STALLOC_CORPUS_ROOT "/bench/corpus/" + name + ".txt.gz");
  if (!recording.ok()) return {.error = recording.status().ToString()};
  const ExperimentOptions options;
  std::vector<const Piece*> pieces;
  for (const std::size_t iteration : options.planned) pieces.push_back(&recording->iterations[iteration]);
  const ComposedRun traced = ComposeRun(*recording, pieces, options.marks);
  absl::StatusOr<DevicePlan> plan = PlanOf(traced, options);
  if (!plan.ok()) return {.error = plan.status().ToString()};
  prepared.plan = *std::move(plan);
  prepared.served = prepared.plan.prologue.size() - 1 + traced.unmarked;
  pieces.resize(prepared.served);
  pieces.insert(pieces.end(), kRounds, &recording->iterations[options.served.front()]);
  prepared.run = ComposeRun(*recording, pieces, options.marks);
  return prepared;
}

const PlannedRun& Run(const std::string& name) {
  static std::map<std::string, PlannedRun> known;
  const auto found = known.find(name);
  return found != known.end() ? found->second : known.emplace(name, Prepare(name)).first->second;
}

// More memory is there at once.
class GrowingArena final : public ArenaBacking {
 public:
  explicit GrowingArena(const DevicePlan& plan) : mapped_(plan.arena_bytes) {}
  void Serve(PlanEngine& engine) { engine_ = &engine; }
  bool Back(Offset offset, Bytes bytes, std::uint64_t /*now*/, MayTake /*may_take*/) noexcept override {
    mapped_ = std::max(mapped_, (offset + bytes + kGrowth - 1) / kGrowth * kGrowth);
    engine_->Extend(mapped_);
    return true;
  }

 private:
  PlanEngine* engine_ = nullptr;
  Bytes mapped_;
};

// How a request was served.
enum class Kind : std::uint8_t { kPlanned, kDynamic, kFenced, kNot };
constexpr std::array<const char*, 3> kKinds = {"planned", "dynamic", "fenced"};

Kind KindOf(const PlanEngine::Allocation& made) {
  if (made.pointer == nullptr) return Kind::kNot;
  if (made.reason == MissReason::kNone) return Kind::kPlanned;
  return made.reason == MissReason::kFenced ? Kind::kFenced : Kind::kDynamic;
}

// Nanoseconds.
struct Times {
  std::vector<double> requests;
  std::vector<double> pairs;  // requests with their frees
};
using TimesByKind = std::array<Times, kKinds.size()>;

double ClockNanoseconds() {
  std::vector<double> samples;
  for (int i = 0; i < 10'001; ++i) {
    const auto begin = Clock::now();
    samples.push_back(std::chrono::duration<double, std::nano>(Clock::now() - begin).count());
  }
  std::nth_element(samples.begin(), samples.begin() + 5'000, samples.end());
  return samples[5'000];
}

class TimedReplay {
 public:
  explicit TimedReplay(const PlannedRun& prepared)
      : prepared_(prepared),
        run_(prepared.run),
        arena_(prepared.plan),
        engine_(prepared.plan, kBase, &fence_,
                {.limit_bytes = 2 * prepared.plan.arena_bytes / kGrowth * kGrowth,
                 .mapped_bytes = prepared.plan.arena_bytes,
                 .least_bytes = SmallBlockBytes(prepared.plan.arena_bytes)}),
        blocks_(run_.blocks.size()) {
    for (const StreamInfo& stream : run_.streams) {
      handles_.resize(std::max<std::size_t>(handles_.size(), stream.ordinal + 1));
      handles_[stream.ordinal] = stream.handle;
    }
    arena_.Serve(engine_);
    engine_.SetBacking(&arena_);
  }

  void Replay(TimesByKind& times) {
    const std::size_t timed_from = run_.begin[prepared_.served];
    for (std::size_t i = 0; i < run_.steps.size(); ++i) Take(run_.steps[i], i >= timed_from, times);
  }

 private:
  struct Block {
    void* pointer = nullptr;
    double nanoseconds = 0;
    Kind kind = Kind::kNot;  // kNot, too, of those that are not timed
  };

  void Take(const Step& step, bool timed, TimesByKind& times) {
    switch (step.kind) {
      case StepKind::kAllocate:
        return Allocate(step.index, timed, times);
      case StepKind::kFree:
        return Free(blocks_[step.index], times);
      case StepKind::kUse:
        return RecordStream(blocks_[step.index], handles_[step.stream]);
      case StepKind::kMark:
        return engine_.OnMark(run_.marks[step.index]);
    }
  }

  void RecordStream(const Block& block, StreamHandle stream) {
    if (block.pointer != nullptr) engine_.RecordStream(block.pointer, stream);
  }

  void Allocate(std::uint32_t index, bool timed, TimesByKind& times) {
    const stalloc::bench::Block& asked = run_.blocks[index];
    if ((asked.flags & (kAllocCaptured | kAllocParallel)) != 0) return;
    const StreamHandle handle = handles_[asked.stream];
    const auto begin = Clock::now();
    const PlanEngine::Allocation made = engine_.Allocate(asked.requested, handle);
    const double taken = Since(begin);
    const Kind kind = timed ? KindOf(made) : Kind::kNot;
    blocks_[index] = {made.pointer, taken, kind};
    if (kind != Kind::kNot) times[static_cast<std::size_t>(kind)].requests.push_back(taken);
  }

  void Free(const Block& block, TimesByKind& times) {
    if (block.pointer == nullptr) return;
    const auto begin = Clock::now();
    engine_.Free(block.pointer);
    const double taken = Since(begin);
    if (block.kind == Kind::kNot) return;
    times[static_cast<std::size_t>(block.kind)].pairs.push_back(block.nanoseconds + taken);
  }

  [[nodiscard]] double Since(Clock::time_point begin) const {
    return std::max(0.0, std::chrono::duration<double, std::nano>(Clock::now() - begin).count() - clock_);
  }

  const PlannedRun& prepared_;
  const ComposedRun& run_;
  const double clock_ = ClockNanoseconds();
  InstantFence fence_;
  GrowingArena arena_;
  PlanEngine engine_;
  std::vector<Block> blocks_;
  std::vector<StreamHandle> handles_;  // by the stream's ordinal, which counts through all devices
};

void Report(benchmark::State& state, const std::string& name, std::vector<double>& samples) {
  if (samples.empty()) return;
  const auto quantile = [&](double share) {
    const auto at = samples.begin() + static_cast<std::ptrdiff_t>(share * static_cast<double>(samples.size() - 1));
    std::nth_element(samples.begin(), at, samples.end());
    return *at;
  };
  state.counters[name + "_median_ns"] = quantile(0.5);
  state.counters[name + "_p99_ns"] = quantile(0.99);
}

void TimeDynamic(benchmark::State& state, const std::string& name) {
  const PlannedRun& prepared = Run(name);
  if (!prepared.error.empty()) return state.SkipWithError(prepared.error.c_str());
  TimesByKind times;
  for (auto _ : state) {
    TimedReplay replay(prepared);
    replay.Replay(times);
  }
  for (std::size_t kind = 0; kind < kKinds.size(); ++kind) {
    Report(state, kKinds[kind], times[kind].requests);
    Report(state, std::string(kKinds[kind]) + "_pair", times[kind].pairs);
  }
}
BENCHMARK_CAPTURE(TimeDynamic, gpt_moe16, "gpt_moe16")->Unit(benchmark::kMillisecond)->Iterations(2);
BENCHMARK_CAPTURE(TimeDynamic, megatron_moe_ep2, "megatron_moe_ep2_rank0")
    ->Unit(benchmark::kMillisecond)
    ->Iterations(2);

}  // namespace
}  // namespace stalloc::bench
