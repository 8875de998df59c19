// Times each allocation and each free of torch's current allocator, from several threads: what bench/alloc_overhead.py
// loads. A shared library, so that the process is Python's, with whatever allocator was put in place there.

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#ifdef STALLOC_BENCH_CUDA
#include <c10/cuda/CUDACachingAllocator.h>
#endif

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstddef>
#include <thread>
#include <vector>

namespace {

c10::Allocator* CurrentAllocator(bool cuda) {
#ifdef STALLOC_BENCH_CUDA
  if (cuda) return c10::cuda::CUDACachingAllocator::get();
#endif
  return cuda ? nullptr : c10::GetCPUAllocator();
}

template <typename Work>
double Nanoseconds(const Work& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

// One round: `threads` threads allocate `count` blocks each, of bytes[0 .. count), then, when all have, free them. The
// times of block i of thread t go to [t * count + i], in nanoseconds, the clock's own cost included. 0: done, 1: this
// library has no such device. Throws nothing; an allocator that throws ends the process.
extern "C" int stalloc_bench_round(int cuda, int threads, int count, const std::size_t* bytes, double* allocate_ns,
                                   double* free_ns) noexcept {
  c10::Allocator* const allocator = CurrentAllocator(cuda != 0);
  if (allocator == nullptr) return 1;
  std::barrier barrier(threads);
  const auto run = [&](int thread) {
    const std::size_t first = static_cast<std::size_t>(thread) * static_cast<std::size_t>(count);
    std::vector<c10::DataPtr> blocks(static_cast<std::size_t>(count));
    barrier.arrive_and_wait();
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      allocate_ns[first + i] = Nanoseconds([&] { blocks[i] = allocator->allocate(bytes[i]); });
    }
    barrier.arrive_and_wait();
    for (std::size_t i = 0; i < blocks.size(); ++i) free_ns[first + i] = Nanoseconds([&] { blocks[i].clear(); });
  };
  std::vector<std::jthread> pool;
  for (int thread = 1; thread < threads; ++thread) pool.emplace_back(run, thread);
  run(0);
  return 0;
}

// Median cost of the clock itself, in nanoseconds.
extern "C" double stalloc_bench_clock() noexcept {
  constexpr int kTimes = 1001;
  std::vector<double> times(kTimes);
  for (double& time : times) time = Nanoseconds([] {});
  std::nth_element(times.begin(), times.begin() + kTimes / 2, times.end());
  return times[kTimes / 2];
}
