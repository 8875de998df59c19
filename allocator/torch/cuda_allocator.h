// StallocCudaAllocator: PyTorch's CUDA allocator with a plan in front of it.
//
// Holds the native caching allocator that was installed before and passes everything on to it, except the requests that
// the session serves from its arena (allocator/runtime). Graph captures and MemPools, IPC, history, OOM retries
// and observers, cache statistics for cuDNN and the rest therefore stay what users know. Every virtual function of the
// base classes is overridden (tests/torch/test_virtuals.py), since a base default would hide the native allocator's:
// here what all supported versions of torch have, in version/virtual_functions.h what they have in different forms.
//
// All blocks carry one deleter, also native ones: torch compares deleters to find the owner of a block. Where the
// native allocator runs uncached (PYTORCH_NO_CUDA_MEMORY_CACHING, torch.cuda.memory.caching_allocator_enable(False)) it
// is left alone altogether. Thread-safe. Never destroyed: frees arrive until the process is gone.
#pragma once

#include <c10/cuda/CUDACachingAllocator.h>

#include <memory>
#include <mutex>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "allocator/torch/cuda_device_table.h"
#include "allocator/torch/cuda_history.h"
#include "allocator/torch/cuda_mem_pools.h"
#include "allocator/torch/cuda_pools.h"
#include "allocator/torch/graph_guard.h"
#include "allocator/torch/uncounted_bytes.h"
#include "allocator/torch/version/virtual_functions.h"

namespace stalloc {

class StallocCudaAllocator final : public version::VirtualFunctions {
 public:
  using Native = version::Native;
  using DeviceIndex = c10::DeviceIndex;
  using MempoolId = c10::MempoolId_t;
  using AllocatorState = c10::cuda::CUDACachingAllocator::AllocatorState;
  using CheckpointDelta = c10::cuda::CUDACachingAllocator::CheckpointDelta;
  using SnapshotInfo = c10::cuda::CUDACachingAllocator::SnapshotInfo;

  // `native`, `session`: live for ever.
  StallocCudaAllocator(Native* native, Session* session, std::string torch_version);

  // Captures and launches of graphs are followed from now on, where this torch lets us. Before the first block; once.
  void FollowGraphs();
  // For tests: by this guard, of graph_pools().
  void FollowGraphs(GraphGuard* guard) noexcept { guard_ = guard; }
  [[nodiscard]] bool follows_graphs() const noexcept { return guard_ != nullptr; }
  [[nodiscard]] GraphPools& graph_pools() noexcept { return graph_pools_; }
  // What NCCL takes of devices is counted from now on, where torch calls it. Once.
  void CountCommunicators();
  // For each device that something was allocated on: what no allocator counts, by cause. JSON.
  [[nodiscard]] std::string UncountedFigures() const;

  // Blocks: cuda_allocator.cc
  c10::DataPtr allocate(std::size_t bytes) override;
  c10::DeleterFnPtr raw_deleter() const override;
  void* raw_alloc(std::size_t bytes) override;
  void* raw_alloc_with_stream(std::size_t bytes, cudaStream_t stream) override;
  void raw_delete(void* pointer) override;
  using CUDAAllocator::recordStream;
  void recordStream(const c10::DataPtr& block, c10::cuda::CUDAStream stream) override;
  void recordStream(const c10::DataPtr& block, c10::Stream stream) override;
  CheckpointDelta setCheckpointPoolState(DeviceIndex device, std::shared_ptr<AllocatorState> state) override;
  void beginAllocateToPool(DeviceIndex device, MempoolId pool, std::function<bool(cudaStream_t)> filter) override;
  void endAllocateToPool(DeviceIndex device, MempoolId pool) override;
  void releasePool(DeviceIndex device, MempoolId pool) override;
  bool checkPoolLiveAllocations(DeviceIndex device, MempoolId pool, const std::unordered_set<void*>& expected) override;
  std::shared_ptr<AllocatorState> getCheckpointState(DeviceIndex device, MempoolId pool) override;

  // Figures, recording, peers: cuda_figures.cc
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(DeviceIndex device) override;
  void resetAccumulatedStats(DeviceIndex device) override;
  void resetPeakStats(DeviceIndex device) override;
  void attachAllocatorTraceTracker(c10::cuda::CUDACachingAllocator::AllocatorTraceTracker tracker) override;
  void emptyCache(MempoolId pool) override;
  double getMemoryFraction(DeviceIndex device) override;
  void setMemoryFraction(double fraction, DeviceIndex device) override;
  void* getBaseAllocation(void* pointer, std::size_t* bytes) override;
  c10::cuda::CUDACachingAllocator::ShareableHandle shareIpcHandle(void* pointer) override;
  void enablePeerAccess(DeviceIndex device, DeviceIndex device_to_access) override;
  cudaError_t memcpyAsync(void* to, int to_device, const void* from, int from_device, std::size_t bytes,
                          cudaStream_t stream, bool p2p_enabled) override;

  // The native allocator's alone.
  bool is_simple_data_ptr(const c10::DataPtr& block) const override { return native_->is_simple_data_ptr(block); }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { native_->copy_data(to, from, bytes); }
  void init(int device_count) override { native_->init(device_count); }
  bool initialized() override { return native_->initialized(); }
  void enable(bool value) override { native_->enable(value); }
  bool isEnabled() const override { return native_->isEnabled(); }
  std::string name() override { return native_->name(); }
  void cacheInfo(DeviceIndex device, std::size_t* largest) override { native_->cacheInfo(device, largest); }
  int getPoolUseCount(DeviceIndex device, MempoolId pool) override { return native_->getPoolUseCount(device, pool); }
  std::shared_ptr<void> getIpcDevPtr(std::string handle) override { return native_->getIpcDevPtr(std::move(handle)); }
  bool isHistoryEnabled() override { return native_->isHistoryEnabled(); }
  void recordAnnotation(const std::vector<std::pair<std::string, std::string>>& metadata) override {
    native_->recordAnnotation(metadata);
  }
  void pushCompileContext(std::string& context) override { native_->pushCompileContext(context); }
  void popCompileContext() override { native_->popCompileContext(); }
  void attachOutOfMemoryObserver(c10::cuda::CUDACachingAllocator::OutOfMemoryObserver observer) override {
    relay_.Attach(std::move(observer), [this](auto ours) { native_->attachOutOfMemoryObserver(std::move(ours)); });
  }

 private:
  // The functions that version/virtual_functions.h calls: cuda_figures.cc
  SnapshotInfo TakeSnapshot(MempoolId pool, bool include_traces) override;
  void ConfigureHistory(const AllocationHistory::Options& options) override;
  bool ContextOfBlock(const void* pointer, AllocationHistory::Context* context) override;
  bool AnnotateBlock(AllocationHistory::Entry::Action action, const void* pointer,
                     const std::string& metadata) override;
  void CheckMayAllocateAt(const void* address) override;
  void OnPoolMade(DeviceIndex device, MempoolId pool, bool has_own_allocator) override {
    mem_pools_.Made(device, pool, !has_own_allocator);
  }
  void OnPoolNotSplit(DeviceIndex device, MempoolId pool) override { mem_pools_.LeaveToNative(device, pool); }
  c10::DataPtr Adopt(c10::DataPtr block, std::size_t bytes) override;

  void* Serve(std::size_t bytes, DeviceIndex device, cudaStream_t stream);
  void* ServeNative(std::size_t bytes, DeviceIndex device, cudaStream_t stream);
  [[nodiscard]] std::optional<UncountedBytes::Sample> MeasureUncounted();
  [[nodiscard]] bool Uncached() const { return force_uncached_ || !native_->isEnabled(); }
  [[nodiscard]] static bool IsDefaultPool(const MempoolId& pool) { return pool.first == 0 && pool.second == 0; }

  const bool force_uncached_;  // PYTORCH_NO_CUDA_MEMORY_CACHING
  AllocationHistory history_;
  c10::ApproximateClockToUnixTimeConverter clock_;
  PoolFilters pools_;
  MemPools mem_pools_;
  GraphPools graph_pools_;       // that guard_ knows
  GraphGuard* guard_ = nullptr;  // null: graphs are not followed
  UncountedBytes uncounted_{[this] { return MeasureUncounted(); }};
  std::mutex leaving_mutex_;  // held while a pool's users are counted and it is left by one
  OomRelay relay_;
  CudaDeviceTable devices_;
};

}  // namespace stalloc
