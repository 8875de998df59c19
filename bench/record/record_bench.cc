// What recording costs the caller: nanoseconds per event on the thread that allocates, with the writer thread at work
// on a file.
//
// Paced: bursts of 32 events with pauses between, about 200 000 events a second, more than a training step
// issues. Only the bursts are timed; each burst is one sample, and the median and 99th percentile over the samples are
// reported. Full speed: events back to back. On few cores this measures the writer, since the ring fills and callers
// wait for it.
//
//   record_bench --benchmark_min_time=2
#include <benchmark/benchmark.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "allocator/base/clock.h"
#include "allocator/record/recorder.h"

namespace stalloc {
namespace {

constexpr int kBurst = 32;
constexpr std::int64_t kPauseNanoseconds = 80'000;

// One recorder that all threads of a benchmark share, on a file in the temporary directory.
class SharedRecorder {
 public:
  void SetUp() {
    RecorderOptions options;
    options.path = std::filesystem::temp_directory_path() / ("stalloc-record-bench-" + std::to_string(getpid()));
    path_ = options.path;
    Result<std::unique_ptr<Recorder>> opened = Recorder::Open(options);
    if (opened.ok()) recorder_ = std::move(opened).value();
  }
  void TearDown() {
    recorder_.reset();
    std::filesystem::remove(path_);
  }
  Recorder* get() { return recorder_.get(); }

 private:
  std::string path_;
  std::unique_ptr<Recorder> recorder_;
};

SharedRecorder shared;

const void* Address(int thread, std::uint64_t block) {
  return reinterpret_cast<const void*>((std::uint64_t{1} << 40) * static_cast<unsigned>(thread + 1) + block * 512);
}

// Half allocations, half frees of what was allocated some time ago, as training does.
class Workload {
 public:
  explicit Workload(int thread) : thread_(thread) {}
  void RunBurst(Recorder* recorder) {
    for (int i = 0; i < kBurst / 2; ++i, ++block_) {
      recorder->Allocated(0, Address(thread_, block_ % 4096), 1024 + block_ % 100'000, 0, 0);
      recorder->Freed(Address(thread_, (block_ + 2048) % 4096));
    }
  }

 private:
  const int thread_;
  std::uint64_t block_ = 0;
};

// Sleeps: on a small machine a busy wait would take the core that the writer needs.
void Pause() { usleep(kPauseNanoseconds / 1000); }

double Percentile(std::vector<std::int64_t>* samples, double share) {
  const auto at = samples->begin() + static_cast<std::ptrdiff_t>(share * static_cast<double>(samples->size() - 1));
  std::nth_element(samples->begin(), at, samples->end());
  return static_cast<double>(*at) / kBurst;
}

void BM_RecordPaced(benchmark::State& state) {
  Workload workload(state.thread_index());
  std::vector<std::int64_t> samples;
  for (auto _ : state) {
    const std::int64_t start = MonotonicNanoseconds();
    workload.RunBurst(shared.get());
    const std::int64_t spent = MonotonicNanoseconds() - start;
    samples.push_back(spent);
    state.SetIterationTime(static_cast<double>(spent) * 1e-9);
    Pause();
  }
  using benchmark::Counter;
  state.counters["ns_per_event_median"] = Counter(Percentile(&samples, 0.50), Counter::kAvgThreads);
  state.counters["ns_per_event_p99"] = Counter(Percentile(&samples, 0.99), Counter::kAvgThreads);
  state.counters["blocked"] = Counter(static_cast<double>(shared.get()->GetCounters().blocked), Counter::kAvgThreads);
}

void BM_RecordFullSpeed(benchmark::State& state) {
  Workload workload(state.thread_index());
  for (auto _ : state) workload.RunBurst(shared.get());
  state.SetItemsProcessed(state.iterations() * kBurst);
  state.counters["blocked"] =
      benchmark::Counter(static_cast<double>(shared.get()->GetCounters().blocked), benchmark::Counter::kAvgThreads);
}

void SetUp(const benchmark::State&) { shared.SetUp(); }
void TearDown(const benchmark::State&) { shared.TearDown(); }

BENCHMARK(BM_RecordPaced)->Setup(SetUp)->Teardown(TearDown)->UseManualTime()->Threads(1)->Threads(2);
BENCHMARK(BM_RecordFullSpeed)->Setup(SetUp)->Teardown(TearDown)->UseRealTime()->Threads(1)->Threads(2);

}  // namespace
}  // namespace stalloc

BENCHMARK_MAIN();
