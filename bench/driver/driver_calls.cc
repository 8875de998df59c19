// What the driver's calls cost by the size of a handle, and so what moving idle chunks of an arena costs
// (allocator/backing/idle_chunks.h): on a GPU, with the device idle and busy.
//
//   driver_calls --benchmark_out=driver_calls.json --benchmark_out_format=json
//
// Call/NAME/MIB: one call of the driver for a handle of MIB. Move/MIB/BUSY: 1 GiB of chunks of MIB that lie scattered
// go to one range (Arena::Move), BUSY: while the device writes to other memory. Skips, visibly, without a device.
#include <benchmark/benchmark.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "allocator/arena/arena.h"
#include "allocator/driver/cuda_driver.h"

namespace stalloc {
namespace {

constexpr Bytes kMib = Bytes{1} << 20;
constexpr Bytes kMoved = Bytes{1} << 30;

CudaDriver* Driver() {
  static DriverStatus status;
  static const std::unique_ptr<CudaDriver> driver = CudaDriver::Create(0, &status);
  return driver.get();
}

double Seconds(std::chrono::steady_clock::time_point since) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - since).count();
}

// Work of some tens of milliseconds on memory of its own, that is not waited for.
class OtherWork {
 public:
  explicit OtherWork(const CudaDriver& driver) : driver_(driver) {
    (void)driver.api().CtxPushCurrent(driver.context());
    if (driver.api().MemAlloc(&memory_, kMoved) != cuda::kSuccess) memory_ = 0;
  }
  ~OtherWork() {
    cuda::Context context{};
    (void)driver_.api().CtxPopCurrent(&context);  // the memory goes with the process
  }
  OtherWork(const OtherWork&) = delete;
  OtherWork& operator=(const OtherWork&) = delete;

  void Begin() const {
    constexpr int kTimes = 128;
    for (int i = 0; i < kTimes && memory_ != 0; ++i) (void)driver_.api().MemsetD8Async(memory_, 1, kMoved, nullptr);
  }

 private:
  const CudaDriver& driver_;
  cuda::DevicePointer memory_ = 0;
};

enum class Call { kCreate, kMap, kSetAccess, kUnmap, kRelease };

// All calls in turn, of which one is timed.
void BM_Call(benchmark::State& state, Call timed) {
  CudaDriver* const driver = Driver();
  if (driver == nullptr) return state.SkipWithError("no CUDA device");
  const Bytes bytes = static_cast<Bytes>(state.range(0)) * kMib;
  Address base = 0;
  if (!driver->Reserve(bytes, &base).ok()) return state.SkipWithError("no addresses");
  bool ok = true;
  const auto call = [&](Call which, auto&& run) {
    const auto begin = std::chrono::steady_clock::now();
    ok = run().ok() && ok;
    if (which == timed) state.SetIterationTime(Seconds(begin));
  };
  for ([[maybe_unused]] auto iteration : state) {
    PhysicalHandle handle = 0;
    call(Call::kCreate, [&] { return driver->Create(bytes, &handle); });
    call(Call::kMap, [&] { return driver->Map(base, bytes, handle); });
    call(Call::kSetAccess, [&] { return driver->SetAccess(base, bytes); });
    call(Call::kUnmap, [&] { return driver->Unmap(base, bytes); });
    call(Call::kRelease, [&] { return driver->Release(handle); });
  }
  if (!ok || !driver->ReleaseReservation(base, bytes).ok()) state.SkipWithError("a call failed");
}

// The arena's lower half has holes, every second chunk; what lies there goes above all, in one range, and back.
void BM_Move(benchmark::State& state) {
  CudaDriver* const driver = Driver();
  if (driver == nullptr) return state.SkipWithError("no CUDA device");
  const Bytes chunk = static_cast<Bytes>(state.range(0)) * kMib;
  const std::size_t count = kMoved / chunk;
  DriverStatus status;
  const std::unique_ptr<Arena> arena = Arena::Create(*driver, 4 * kMoved, &status, chunk);
  if (arena == nullptr || !arena->GrowTo(2 * kMoved).ok()) return state.SkipWithError("no arena");
  const OtherWork work(*driver);
  std::vector<Arena::Range> from(count);
  std::vector<Arena::Range> to(count);
  for (std::size_t i = 0; i < count; ++i) {
    from[i] = {2 * i * chunk, chunk};
    to[i] = {2 * kMoved + i * chunk, chunk};
  }
  bool ok = true;
  for ([[maybe_unused]] auto iteration : state) {
    ok = driver->Synchronize().ok() && ok;
    if (state.range(1) != 0) work.Begin();
    const auto begin = std::chrono::steady_clock::now();
    arena->Move(from, to);
    state.SetIterationTime(Seconds(begin));
    ok = arena->HolesIn(to.front().offset, chunk).empty() && ok;
    std::swap(from, to);
  }
  state.counters["us_a_chunk"] = benchmark::Counter(
      static_cast<double>(count) * 1e-6, benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
  if (!ok || !driver->Synchronize().ok()) state.SkipWithError("a move failed");
}

constexpr int kLeastMib = 2;
constexpr int kMostMib = 64;

void Sizes(benchmark::internal::Benchmark* benchmark) {
  for (int mib = kLeastMib; mib <= kMostMib; mib *= 2) benchmark->Arg(mib);
  benchmark->UseManualTime()->Iterations(200)->Unit(benchmark::kMicrosecond);
}

void SizesAndWork(benchmark::internal::Benchmark* benchmark) {
  for (int mib = kLeastMib; mib <= kMostMib; mib *= 2) benchmark->Args({mib, 0})->Args({mib, 1});
  benchmark->UseManualTime()->Iterations(20)->Unit(benchmark::kMicrosecond);
}

BENCHMARK_CAPTURE(BM_Call, Create, Call::kCreate)->Apply(Sizes);
BENCHMARK_CAPTURE(BM_Call, Map, Call::kMap)->Apply(Sizes);
BENCHMARK_CAPTURE(BM_Call, SetAccess, Call::kSetAccess)->Apply(Sizes);
BENCHMARK_CAPTURE(BM_Call, Unmap, Call::kUnmap)->Apply(Sizes);
BENCHMARK_CAPTURE(BM_Call, Release, Call::kRelease)->Apply(Sizes);
BENCHMARK(BM_Move)->Apply(SizesAndWork);

}  // namespace
}  // namespace stalloc

BENCHMARK_MAIN();
