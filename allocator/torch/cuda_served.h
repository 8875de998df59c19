// ServedBlocks: reports to statistics, history, torch.profiler and Python's memory trace those blocks of one device
// that its arenas serve.
//
// Native blocks report all that themselves. Thread-safe. A receiver may come back here, to request a snapshot as
// well as for memory: no lock of ours is held meanwhile.
#pragma once

#include <c10/cuda/CUDACachingAllocator.h>

#include <cstdint>
#include <optional>

#include "allocator/runtime/device_runtime.h"
#include "allocator/torch/cuda_history.h"
#include "allocator/torch/cuda_stats.h"

namespace stalloc {

class ServedBlocks {
 public:
  using Native = c10::cuda::CUDACachingAllocator::CUDAAllocator;
  struct Block {
    Bytes requested = 0;
    StreamHandle stream = 0;
  };

  // All of them outlive this.
  ServedBlocks(c10::DeviceIndex device, DeviceRuntime& runtime, Native& native, AllocationHistory& history)
      : device_(device), runtime_(runtime), native_(native), history_(history) {}

  // The block was just given out. Throws what trackers throw: then it is free again, and nothing is left of it.
  void Began(void* pointer, Bytes requested, StreamHandle stream);
  // A native one was.
  void NativeBegan(Bytes requested) {
    if (stats_.NativeAllocated(BlockBytes(requested), requested)) LookAtNative();
  }
  // Takes the native allocator's statistics into the peaks of the sum.
  void LookAtNative() {
    const std::uint64_t before = stats_.native_allocations();
    stats_.Refresh(native_.getDeviceStats(device_), before);
  }
  // Frees the block; of several threads that do, one ends it. `current`: see DeviceRuntime::Free.
  void End(void* pointer, std::optional<StreamHandle> current = std::nullopt) noexcept;

  // The live block that starts there; no bytes: none does.
  [[nodiscard]] Block Find(const void* pointer) const noexcept;
  [[nodiscard]] CombinedStats& stats() noexcept { return stats_; }

  // What arenas hold of the device. Bytes.
  [[nodiscard]] Bytes HeldBytes() const noexcept;
  // For the statistics. True where the sum of what is reserved may be a new peak.
  bool UpdateReserved();

  // Reports to the history the blocks that no stream can use any more.
  void CompleteFrees();

 private:
  void TellBegin(void* pointer, Bytes requested, StreamHandle stream);
  void TellEnd(const DeviceRuntime::Ending& ending);
  [[nodiscard]] bool MayCompleteFrees() const;
  void ReportToProfiler(void* pointer, std::int64_t change);

  const c10::DeviceIndex device_;
  DeviceRuntime& runtime_;
  Native& native_;
  AllocationHistory& history_;
  CombinedStats stats_;
};

}  // namespace stalloc
