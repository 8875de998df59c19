// PoolFilters: which requests belong to a CUDA graph capture or a MemPool.
//
// torch announces a pool by beginAllocateToPool(device, id, filter) and takes every request whose stream the filter
// accepts from that pool until endAllocateToPool. What is captured is never ours: a graph keeps its addresses after the
// program has freed them. Of MemPools: cuda_mem_pools.h. Thread-safe. Without an open pool the question costs one
// relaxed load.
#pragma once

#include <c10/core/CachingDeviceAllocator.h>
#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <shared_mutex>
#include <utility>
#include <vector>

#include "allocator/driver/capture_gate.h"

namespace stalloc {

class PoolFilters {
 public:
  using Filter = std::function<bool(cudaStream_t)>;
  using IsCapturing = std::function<bool(cudaStream_t)>;  // true where it is unknown

  PoolFilters();  // queries the driver
  explicit PoolFilters(IsCapturing is_capturing);

  // The pool's number (OpenPool): gives it one.
  std::uint32_t Announce(c10::DeviceIndex device, c10::MempoolId_t pool);
  // 0: it was never announced or opened.
  [[nodiscard]] std::uint32_t NumberOf(c10::DeviceIndex device, c10::MempoolId_t pool) const;

  void Begin(c10::DeviceIndex device, c10::MempoolId_t pool, Filter filter);
  // Closes the pool's newest opening on that device; unknown pools are ignored.
  void End(c10::DeviceIndex device, c10::MempoolId_t pool);

  // The pool was opened or announced before, and may have been closed since.
  [[nodiscard]] bool HasOpened(c10::DeviceIndex device, c10::MempoolId_t pool) const {
    return NumberOf(device, pool) != 0;
  }

  // Closed while a capture may run, on whichever device: from a pool's opening until it has served a stream that is not
  // captured. torch opens a capture's pool before the capture, and closes it after; a MemPool's may stay open for long,
  // and one whose capture failed for ever.
  [[nodiscard]] CaptureGate& captures() noexcept { return captures_; }

  struct OpenPool {
    c10::MempoolId_t id;
    std::uint32_t number = 0;  // 1 + its ordinal among the pools that were opened, or announced, on any device
  };
  // The open pool of the device that accepts the stream, if there is one. Filters may call CUDA, and throw what it
  // throws.
  [[nodiscard]] std::optional<OpenPool> Accept(c10::DeviceIndex device, cudaStream_t stream) const {
    if (open_count_.load(std::memory_order_relaxed) == 0) return std::nullopt;
    return AcceptSlowly(device, stream);
  }
  // True where it is unknown.
  [[nodiscard]] bool IsCaptured(cudaStream_t stream) const { return is_capturing_(stream); }

 private:
  struct Open {
    c10::DeviceIndex device;
    OpenPool pool;
    Filter filter;
    mutable std::uintptr_t last = kNone;  // stream that the filter accepted; by atomic_ref
  };
  static constexpr std::uintptr_t kNone = ~std::uintptr_t{0};

  std::optional<OpenPool> AcceptSlowly(c10::DeviceIndex device, cudaStream_t stream) const;
  [[nodiscard]] bool NoneCaptures(int announced) const;
  std::uint32_t Number(c10::DeviceIndex device, c10::MempoolId_t pool);  // REQUIRES: mutex_ is held

  std::atomic<std::size_t> open_count_{0};
  mutable std::shared_mutex mutex_;
  std::vector<Open> open_;
  std::map<std::pair<c10::DeviceIndex, c10::MempoolId_t>, std::uint32_t> numbers_;
  const IsCapturing is_capturing_;
  CaptureGate captures_{[this](int announced) { return NoneCaptures(announced); }};
};

}  // namespace stalloc
