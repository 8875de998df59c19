// What the engine costs a training process: recorded iterations replayed over their own plans, on addresses that are
// never touched.
//
//   ReplayIteration   allocate + free, served from the plan: time of an iteration over its pairs (to be <= 120 ns)
//   ReplayStreams     the same, one request in 32 on a side stream that shares bytes with the main one, over a fence
//                     that costs nothing: what keeping order costs besides the driver's calls
//   TimePairs         the same, each call timed: median, 99th and 99.9th percentile of a pair's two calls
//   OutOfSync         requests that keep the matcher aligning: time a request
//   MatcherInSync     the matcher alone
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "allocator/engine/follow/matcher.h"
#include "allocator/engine/plan_engine.h"
#include "planner/trial/instant_fence.h"
#include "tests/engine/corpus.h"
#include "tests/engine/first_fit_plan.h"

namespace stalloc {
namespace {

using Clock = std::chrono::steady_clock;

std::byte* const kBase = reinterpret_cast<std::byte*>(std::uintptr_t{1} << 40);

Mark IterationBegin() { return {MarkKind::kIteration, MarkEdge::kBegin, Pass::kNone, 0, 0, "", false}; }

struct Recorded {
  explicit Recorded(const std::string& name)
      : requests(ReadCorpus(name).Iteration(2)), steps(StepsOf(requests)), plan(FirstFitPlan(requests)) {}
  [[nodiscard]] Bytes BytesOf(const ReplayStep& step) const { return requests[step.request].bytes; }

  std::vector<CorpusAllocation> requests;
  std::vector<ReplayStep> steps;
  DevicePlan plan;
};

const Recorded& Run(const std::string& name) {
  static const Recorded dense("gpt_dense");
  static const Recorded pipeline("megatron_vpp_rank0");
  return name == "gpt_dense" ? dense : pipeline;
}

void ReplayOnce(const Recorded& run, PlanEngine& engine, std::vector<void*>& blocks) {
  engine.OnMark(IterationBegin());
  for (const ReplayStep& step : run.steps) {
    if (step.allocate) {
      blocks[step.request] = engine.Allocate(run.BytesOf(step), 0).pointer;
    } else {
      engine.Free(blocks[step.request]);
    }
  }
}

void ReplayIteration(benchmark::State& state, const std::string& name) {
  const Recorded& run = Run(name);
  PlanEngine engine(run.plan, kBase, nullptr);
  std::vector<void*> blocks(run.requests.size());
  for (auto _ : state) ReplayOnce(run, engine, blocks);
  const EngineStats stats = engine.Stats();
  if (stats.planned_hits != stats.requests) state.SkipWithError("not every request was served from the plan");
  const auto pairs = static_cast<double>(stats.requests);
  state.counters["per_pair"] = benchmark::Counter(pairs, benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}
BENCHMARK_CAPTURE(ReplayIteration, gpt_dense, "gpt_dense")->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(ReplayIteration, megatron_vpp, "megatron_vpp_rank0")->Unit(benchmark::kMicrosecond);

void ReplayStreams(benchmark::State& state, const std::string& name) {
  constexpr std::uint32_t kEvery = 32;
  const Recorded& run = Run(name);
  DevicePlan plan = run.plan;
  std::vector<Entry>& entries = plan.cycle[0].entries;
  for (std::uint32_t i = 0; i < entries.size(); i += kEvery) entries[i].stream = 1;
  InstantFence fence;
  PlanEngine engine(plan, kBase, &fence);
  std::vector<void*> blocks(run.requests.size());
  for (auto _ : state) {
    engine.OnMark(IterationBegin());
    for (const ReplayStep& step : run.steps) {
      if (step.allocate) {
        blocks[step.request] = engine.Allocate(run.BytesOf(step), step.request % kEvery == 0 ? 5 : 0).pointer;
      } else {
        engine.Free(blocks[step.request]);
      }
    }
  }
  const EngineStats stats = engine.Stats();
  if (stats.planned_hits != stats.requests) state.SkipWithError("not every request was served from the plan");
  const auto iterations = static_cast<double>(stats.iterations);
  state.counters["per_pair"] = benchmark::Counter(static_cast<double>(stats.requests),
                                                  benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
  state.counters["waits"] = static_cast<double>(stats.stream_waits) / iterations;
  state.counters["events"] = static_cast<double>(stats.stream_events) / iterations;
}
BENCHMARK_CAPTURE(ReplayStreams, gpt_dense, "gpt_dense")->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(ReplayStreams, megatron_vpp, "megatron_vpp_rank0")->Unit(benchmark::kMicrosecond);

// Cost of reading the clock twice, which the timed calls contain.
double ClockOverhead() {
  std::vector<double> samples;
  for (int i = 0; i < 10'000; ++i) {
    const auto begin = Clock::now();
    samples.push_back(std::chrono::duration<double, std::nano>(Clock::now() - begin).count());
  }
  std::nth_element(samples.begin(), samples.begin() + 5'000, samples.end());
  return samples[5'000];
}

double Percentile(std::vector<double>& samples, double share) {
  const auto at = samples.begin() + static_cast<std::ptrdiff_t>(share * static_cast<double>(samples.size() - 1));
  std::nth_element(samples.begin(), at, samples.end());
  return *at;
}

void TimePairs(benchmark::State& state, const std::string& name) {
  const Recorded& run = Run(name);
  const double overhead = 2 * ClockOverhead();
  PlanEngine engine(run.plan, kBase, nullptr);
  std::vector<void*> blocks(run.requests.size());
  std::vector<double> cost(run.requests.size());
  std::vector<double> pairs;
  for (auto _ : state) {
    engine.OnMark(IterationBegin());
    for (const ReplayStep& step : run.steps) {
      const auto begin = Clock::now();
      if (step.allocate) {
        blocks[step.request] = engine.Allocate(run.BytesOf(step), 0).pointer;
      } else {
        engine.Free(blocks[step.request]);
      }
      const double nanoseconds = std::chrono::duration<double, std::nano>(Clock::now() - begin).count();
      cost[step.request] = step.allocate ? nanoseconds : cost[step.request] + nanoseconds - overhead;
    }
    pairs.insert(pairs.end(), cost.begin(), cost.end());
  }
  state.counters["median_ns"] = Percentile(pairs, 0.5);
  state.counters["p99_ns"] = Percentile(pairs, 0.99);
  state.counters["p99.9_ns"] = Percentile(pairs, 0.999);
}
BENCHMARK_CAPTURE(TimePairs, gpt_dense, "gpt_dense")->Unit(benchmark::kMicrosecond)->Iterations(200);
BENCHMARK_CAPTURE(TimePairs, megatron_vpp, "megatron_vpp_rank0")->Unit(benchmark::kMicrosecond)->Iterations(50);

// Known sizes in random order: the matcher never finds its way, and looks for anchors all the time.
void OutOfSync(benchmark::State& state) {
  const Recorded& run = Run("gpt_dense");
  PlanEngine engine(run.plan, kBase, nullptr);
  std::mt19937_64 random(5);
  std::vector<Bytes> sizes;
  for (int i = 0; i < 4096; ++i) sizes.push_back(run.requests[random() % run.requests.size()].bytes);
  engine.OnMark(IterationBegin());
  for (auto _ : state) {
    for (const Bytes bytes : sizes) {
      if (void* block = engine.Allocate(bytes, 0).pointer; block != nullptr) engine.Free(block);
    }
  }
  const EngineStats stats = engine.Stats();
  state.counters["per_request"] = benchmark::Counter(static_cast<double>(stats.requests),
                                                     benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
  state.counters["served"] = static_cast<double>(stats.planned_hits) / static_cast<double>(stats.requests);
}
BENCHMARK(OutOfSync)->Unit(benchmark::kMicrosecond);

void MatcherInSync(benchmark::State& state) {
  const Recorded& run = Run("gpt_dense");
  const ScriptIndex index(run.plan.cycle[0]);
  Matcher matcher;
  for (auto _ : state) {
    matcher.Follow(&index, 0);
    for (const CorpusAllocation& request : run.requests) {
      benchmark::DoNotOptimize(matcher.Next(ToGranules(request.bytes)));
    }
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(run.requests.size()));
}
BENCHMARK(MatcherInSync)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace stalloc

BENCHMARK_MAIN();
