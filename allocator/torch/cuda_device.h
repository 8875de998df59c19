// CudaDevice: what the adapter keeps for one CUDA device: its driver, runtime, statistics and memory fraction.
//
// Blocks of ours ("served": in an arena) pass through here, so that statistics, history, torch.profiler and Python's
// memory trace see them as they see native ones. Where the runtime has no arena, nothing is kept and the
// native allocator's own figures hold unchanged. Thread-safe. Never destroyed.
#pragma once

#include <c10/cuda/CUDACachingAllocator.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "allocator/capi/cuda_stream_fence.h"
#include "allocator/driver/cuda_copies.h"
#include "allocator/driver/cuda_driver.h"
#include "allocator/driver/cuda_watch_memory.h"
#include "allocator/graphs/graph_pools.h"
#include "allocator/runtime/session.h"
#include "allocator/torch/cuda_history.h"
#include "allocator/torch/cuda_known_blocks.h"
#include "allocator/torch/cuda_mem_pools.h"
#include "allocator/torch/cuda_pools.h"
#include "allocator/torch/cuda_served.h"
#include "allocator/torch/cuda_upstream.h"
#include "allocator/torch/uncounted_bytes.h"

namespace stalloc {

class CudaDevice final : private ArenaListener {
 public:
  using Native = CudaUpstream::Native;
  using DeviceStats = c10::CachingDeviceAllocator::DeviceStats;

  struct Environment {
    Session* session = nullptr;
    Native* native = nullptr;
    AllocationHistory* history = nullptr;
    PoolFilters* pools = nullptr;
    MemPools* mem_pools = nullptr;
    GraphPools* graph_pools = nullptr;
    const UncountedBytes* uncounted = nullptr;
    OomRelay* relay = nullptr;
    std::string torch_version;
  };

  // Maps the plan's arena, if there is one; in Mode::kAuto one may come later. `peers` may access it. REQUIRES: CUDA
  // and the native allocator are initialised. Throws c10::Error where STALLOC_STRICT=1 refuses the plan.
  CudaDevice(const Environment& environment, c10::DeviceIndex index, const std::vector<c10::DeviceIndex>& peers);

  // `pool`: an open one that the request belongs to. REQUIRES: bytes > 0, this device is current. Throws what the
  // native allocator throws.
  void* Allocate(Bytes requested, cudaStream_t stream, const std::optional<PoolFilters::OpenPool>& pool);
  // A block that the native allocator cannot free is an exception, as it is without us.
  void Free(void* pointer);
  void RecordStream(void* pointer, const c10::cuda::CUDAStream& stream);

  // The stream is not another device's, as far as the driver knows.
  [[nodiscard]] bool HasStream(cudaStream_t stream) const noexcept {
    return events_ == nullptr || !IsOfOtherDevice(events_->NameOf(reinterpret_cast<StreamHandle>(stream)));
  }

  // An arena holds the address.
  [[nodiscard]] bool Serves(const void* pointer) const noexcept { return serves_ && runtime_->Owns(pointer); }
  // That, or a native block that came through here.
  [[nodiscard]] bool Knows(const void* pointer) const noexcept {
    return Serves(pointer) || runtime_->UpstreamBlockBytes(pointer) != 0;
  }

  [[nodiscard]] DeviceStats Stats();
  // What the allocators of this process hold of the device, ours and the native one. Bytes.
  [[nodiscard]] Bytes HeldBytes() const;
  // What is taken of the device beyond that, by any process. Bytes; 0: not known.
  [[nodiscard]] Bytes TakenBytes() const;
  // The same when this was made, communicators apart: this process's context and other processes.
  [[nodiscard]] Bytes TakenAtStart() const noexcept { return taken_at_start_; }
  void ResetPeakStats();
  void ResetAccumulatedStats();
  // There is an arena. With one, the native allocator's segments are expandable on all devices, by our choice. It
  // unmaps those after the stream that they belong to alone, where cudaFree would wait for the device: a graph that is
  // replayed on another stream and gone by now may still write there. So that emptied caches wait as they did without
  // us (AwaitAll); not while a capture is open.
  [[nodiscard]] bool HasArena() const noexcept { return serves_ && !runtime_->spaces().empty(); }
  // Before the native allocator gives memory back.
  void LookAtNative() {
    if (serves_) blocks_->LookAtNative();
  }
  // The whole device is done with all that it was given; false where it cannot be waited for.
  [[nodiscard]] bool AwaitAll() noexcept { return driver_ != nullptr && driver_->Synchronize().ok(); }
  // Idle chunks of the arenas. Nothing while a capture may run.
  void EmptyCache();
  // The idle chunks alone, for a graph's pool that is about to be filled.
  void MakeRoom();
  // A pool is opened, or closed.
  void PoolOpens() noexcept;
  void PoolCloses() noexcept;

  void SetMemoryFraction(double fraction);
  [[nodiscard]] double MemoryFraction() const;

  // Opens our memory to `peer`. Fails silently where the devices have no link: native reports that.
  void EnablePeer(c10::DeviceIndex peer) noexcept;
  // A graph pool of the native allocator was set back: these blocks of it ended, those began.
  void PoolSetBack(const std::vector<void*>& ended, const std::vector<c10::DataPtr>& begun);
  // Base and size of the arena. REQUIRES: Serves(pointer).
  void* BaseAllocation(void* pointer, std::size_t* bytes) const;
  // For another process: see cuda_ipc.h. REQUIRES: Serves(pointer).
  [[nodiscard]] c10::cuda::CUDACachingAllocator::ShareableHandle Share(const void* pointer) const;

  // The stack of the live block that holds the address. REQUIRES: Serves(pointer).
  [[nodiscard]] AllocationHistory::Context ContextOf(const void* pointer) const;
  // The program's words on the live block that starts there, for the history. REQUIRES: Serves(pointer).
  void Annotate(AllocationHistory::Entry::Action action, const void* pointer, const std::string& metadata);
  // A native block that did not come through Allocate.
  void Adopt(void* pointer, Bytes requested, cudaStream_t stream) noexcept;

  // Reports to the history the blocks that no stream can use any more.
  void CompleteFrees() { blocks_->CompleteFrees(); }
  void AppendSegments(std::vector<c10::cuda::CUDACachingAllocator::SegmentInfo>& segments) const;

  // This thread is in a tracker that is notified of an arena's change, of whichever device. What the tracker requests
  // is the native allocator's: the change holds locks that a request of the arena would wait for.
  [[nodiscard]] static bool ReportsSegments() noexcept;

  [[nodiscard]] c10::DeviceIndex index() const noexcept { return index_; }
  [[nodiscard]] bool serves() const noexcept { return serves_; }

 private:
  // History and trackers see the arena as runs of chunks, as snapshots do: before a change all runs end, after it those
  // that are there begin.
  void BeforeArenaChange() noexcept override;
  void AfterArenaChange() noexcept override;
  void TellSegments(AllocationHistory::Entry::Action action) noexcept;
  [[nodiscard]] Fingerprint DeviceFingerprint();  // also sets device_bytes_
  void OpenDriver(const std::vector<c10::DeviceIndex>& peers);
  void UpdateSample();
  void ApplyFraction();
  void ApplyNativeShare();
  void WarnOfArenaAbove(Bytes share) const;
  void OnOutOfMemory(c10::Error& error, Bytes requested, cudaStream_t stream);
  void OnCaptured(const KnownBlock& block) noexcept;
  // The block goes back to the native allocator: where it is of a graphs' pool that is followed, its catalog learns of
  // it.
  void OnNativeFree(const void* pointer) noexcept;

  const Environment environment_;
  const c10::DeviceIndex index_;
  CudaUpstream upstream_;
  std::unique_ptr<CudaDriver> driver_;  // null: no virtual memory management, so no arena
  std::unique_ptr<CudaEvents> events_;
  std::unique_ptr<CudaStreamFence> fence_;
  std::unique_ptr<CudaCopies> copies_;      // null: no driver
  std::unique_ptr<CudaWatchMemory> watch_;  // null: not wanted, or not possible
  DeviceRuntime* runtime_ = nullptr;        // the session's
  std::atomic<bool> serves_{false};         // there is an arena
  std::unique_ptr<ServedBlocks> blocks_;
  KnownBlocks captured_blocks_;                // what was last requested at each address of a graph pool
  std::atomic<bool> has_graph_blocks_{false};  // a catalog knows of some
  Bytes mapped_before_change_ = 0;             // of the arena; one change at a time
  std::atomic<std::int64_t> times_mapped_{0};  // the arena grew or came back, since the last reset
  std::atomic<std::int64_t> times_unmapped_{0};
  Bytes device_bytes_ = 0;  // all the device has
  Bytes taken_at_start_ = 0;
  mutable std::mutex fraction_mutex_;  // guards the two below
  double fraction_ = 1.0;              // as the user set it; 1: not limited
  double native_share_ = 1.0;          // as set in the native allocator
};

}  // namespace stalloc
