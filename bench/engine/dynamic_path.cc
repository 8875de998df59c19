// What the engine costs where a plan does not know it all: recorded runs with experts, planned from three iterations;
// the fourth is served, over and over. All of it is done several times, and each call counts as it was fastest: what
// else the machine does meanwhile is not the engine's.
//
//   TimeDynamic   each call timed, the clock's own time taken off: median, 99th and 99.9th percentile of the requests
//                 that get their slots (planned), that get space without a slot (dynamic), the same in an evaluation
//                 (fenced), and of each with its free (pair)
//   TimeNoRoom    the worst that a plan can be for requests that no entry explains: thousands of blocks live, and there
//                 is no space between them, or many holes that are too small. Slots are freed and taken in between
#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
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
  bool EnsureBacked(Offset offset, Bytes bytes, std::uint64_t /*now*/, Growth /*growth*/) noexcept override {
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

// Both are of the same calls, or `fastest` of none yet.
void KeepFastest(std::vector<double>& fastest, const std::vector<double>& samples) {
  fastest.resize(samples.size(), std::numeric_limits<double>::infinity());
  std::ranges::transform(fastest, samples, fastest.begin(), [](double a, double b) { return std::min(a, b); });
}

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
    const stalloc::bench::Block& wanted = run_.blocks[index];
    if ((wanted.flags & (kAllocCaptured | kAllocParallel)) != 0) return;
    const StreamHandle handle = handles_[wanted.stream];
    const auto begin = Clock::now();
    const PlanEngine::Allocation made = engine_.Allocate(wanted.requested, handle);
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
  state.counters[name + "_p99.9_ns"] = quantile(0.999);
}

void TimeDynamic(benchmark::State& state, const std::string& name) {
  const PlannedRun& prepared = Run(name);
  if (!prepared.error.empty()) return state.SkipWithError(prepared.error.c_str());
  TimesByKind fastest;
  for (auto _ : state) {
    TimesByKind times;
    TimedReplay replay(prepared);
    replay.Replay(times);
    for (std::size_t kind = 0; kind < kKinds.size(); ++kind) {
      KeepFastest(fastest[kind].requests, times[kind].requests);
      KeepFastest(fastest[kind].pairs, times[kind].pairs);
    }
  }
  for (std::size_t kind = 0; kind < kKinds.size(); ++kind) {
    Report(state, kKinds[kind], fastest[kind].requests);
    Report(state, std::string(kKinds[kind]) + "_pair", fastest[kind].pairs);
  }
}
BENCHMARK_CAPTURE(TimeDynamic, gpt_moe16, "gpt_moe16")->Unit(benchmark::kMillisecond)->Iterations(6);
BENCHMARK_CAPTURE(TimeDynamic, megatron_moe_ep2, "megatron_moe_ep2_rank0")
    ->Unit(benchmark::kMillisecond)
    ->Iterations(6);

// `live` blocks of 1 MiB, one after the other, until the iteration's end.
DevicePlan FullPlan(std::size_t live) {
  constexpr Bytes kBlock = Bytes{1} << 20;
  DevicePlan plan;
  plan.cycle.emplace_back();
  for (std::size_t i = 0; i < live; ++i) {
    Entry entry;
    entry.bytes = entry.min_bytes = entry.max_bytes = kBlock;
    entry.expected_life = live - i;
    entry.slot = static_cast<std::uint32_t>(i);
    plan.slots.push_back({i * kBlock, kBlock});
    plan.cycle[0].entries.push_back(entry);
  }
  plan.arena_bytes = live * kBlock;
  return plan;
}

// `every`: so many-th block is freed before.
void TimeNoRoom(benchmark::State& state, std::size_t live, std::size_t every) {
  constexpr std::size_t kRequests = 4'000;
  constexpr Bytes kAsked = Bytes{3} << 19;
  const DevicePlan plan = FullPlan(live);
  const double clock = ClockNanoseconds();
  std::vector<double> fastest;
  for (auto _ : state) {
    std::vector<double> samples;
    PlanEngine engine(plan, kBase, nullptr, {.limit_bytes = 2 * plan.arena_bytes, .mapped_bytes = plan.arena_bytes});
    engine.OnMark({MarkKind::kIteration, MarkEdge::kBegin, Pass::kNone, 0, 0, "", false});
    std::vector<void*> blocks;
    for (const Slot& slot : plan.slots) blocks.push_back(engine.Allocate(slot.capacity, 0).pointer);
    for (std::size_t i = 0; i < live; i += every) engine.Free(blocks[i]);
    for (std::size_t i = 0; i < kRequests; ++i) {
      engine.Free(blocks[(i * 2 + 1) % live]);  // a hole of two blocks, or of three, or it was free before
      void* const taken = engine.AllocateUnexpected(Bytes{1} << 20, 0, MissReason::kUnmatched).pointer;
      blocks[(i * 2 + 1) % live] = taken;
      const auto begin = Clock::now();
      void* const found = engine.AllocateUnexpected(kAsked, 0, MissReason::kUnmatched).pointer;
      const std::chrono::duration<double, std::nano> time = Clock::now() - begin;
      samples.push_back(std::max(0.0, time.count() - clock));
      if (found != nullptr) engine.Free(found);
    }
    KeepFastest(fastest, samples);
  }
  Report(state, "request", fastest);
}
BENCHMARK_CAPTURE(TimeNoRoom, full, 8192, 1 << 20)->Unit(benchmark::kMillisecond)->Iterations(3);
BENCHMARK_CAPTURE(TimeNoRoom, holes, 8192, 2)->Unit(benchmark::kMillisecond)->Iterations(3);

}  // namespace
}  // namespace stalloc::bench
