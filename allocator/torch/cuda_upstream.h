// CudaUpstream: torch's native CUDA allocator as the upstream of one device's DeviceRuntime.
//
// Thread-safe, as the native allocator is. Allocate throws what that throws, c10::OutOfMemoryError above all.
#pragma once

#include <c10/cuda/CUDACachingAllocator.h>

#include <atomic>
#include <exception>
#include <functional>
#include <utility>

#include "allocator/driver/capture_gate.h"
#include "allocator/runtime/device_runtime.h"
#include "allocator/torch/cuda_oom.h"

namespace stalloc {

class CudaUpstream final : public Upstream {
 public:
  using Native = c10::cuda::CUDACachingAllocator::CUDAAllocator;

  // REQUIRES: the native allocator caches at this moment (it does when a device makes its first request here).
  CudaUpstream(Native* native, c10::DeviceIndex device, OomRelay& relay)
      : native_(native),
        cached_deleter_(native->raw_deleter()),
        pads_blocks_(native->name() == "native"),
        device_(device),
        relay_(relay) {}

  // REQUIRES: the current device is this one's.
  void* Allocate(Bytes requested, StreamHandle stream) override;
  void* AllocateAgain(Bytes requested, StreamHandle stream) override;
  // The runtime frees without throwing. What the native allocator throws is kept for the thread: see RethrowFreeError.
  void Free(void* pointer) noexcept override;
  void RecordStream(void* pointer, StreamHandle stream) override;
  [[nodiscard]] bool IsOutOfMemory(const std::exception_ptr& thrown) const override;
  [[nodiscard]] bool PadsBlocks() const noexcept override { return pads_blocks_; }
  // Nothing while a stream is captured, whose capture it would break.
  void ReleaseCached() noexcept override;
  // Reserved bytes; the peak since the native allocator's peaks were last reset.
  [[nodiscard]] Held HeldBytes() const override;

  // For pools that have an id: of graphs, and of MemPools that the native allocator serves.
  [[nodiscard]] Bytes HeldApart(Bytes live) const override;

  // Before the first request; null (at first): nothing is ever captured.
  void SetCaptureGate(CaptureGate* gate) noexcept { captures_ = gate; }
  // Called before each request while the device's memory is limited: the native allocator's share depends on what we
  // hold.
  void SetLimitHook(std::function<void()> hook) { limit_hook_ = std::move(hook); }
  // Called before cached memory goes back.
  void SetReleaseHook(std::function<void()> hook) { release_hook_ = std::move(hook); }
  void SetLimited(bool limited) noexcept { limited_.store(limited, std::memory_order_relaxed); }

  // Throws what this thread's last Free met, once.
  static void RethrowFreeError() {
    if (free_error_ != nullptr) ThrowFreeError();
  }

  // While it lives, RecordStream on this thread hands the native allocator this very stream object: a bare cudaStream_t
  // would lose the id by which torch knows its pool streams.
  class StreamScope {
   public:
    explicit StreamScope(const c10::cuda::CUDAStream& stream) { recording_ = &stream; }
    ~StreamScope() { recording_ = nullptr; }
    StreamScope(const StreamScope&) = delete;
    StreamScope& operator=(const StreamScope&) = delete;
  };

 private:
  [[noreturn]] static void ThrowFreeError();

  // A pointer, since a thread-local object with a destructor would be dead for frees at the thread's end.
  static thread_local std::exception_ptr* free_error_;
  static thread_local const c10::cuda::CUDAStream* recording_;

  Native* const native_;
  // The native allocator's deleter of cached blocks, kept from a time when it caches: all blocks here are cached ones,
  // and once its caching is switched off both raw_delete and raw_deleter take every block for an uncached one.
  const c10::DeleterFnPtr cached_deleter_;
  const bool pads_blocks_;  // PyTorch's own engine rounds to 512 bytes; CUDA's pools do not say
  const c10::DeviceIndex device_;
  OomRelay& relay_;
  CaptureGate* captures_ = nullptr;
  std::function<void()> limit_hook_;  // set before the first request
  std::function<void()> release_hook_;
  std::atomic<bool> limited_{false};
};

}  // namespace stalloc
