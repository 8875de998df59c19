// A native CUDA allocator without a device: it remembers what it was told. It has the virtual functions of the torch
// that is here because the adapter's own base class has them.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

#include "allocator/torch/version/virtual_functions.h"

namespace stalloc {

class FakeNative : public version::VirtualFunctions {
 public:
  using VirtualFunctions::recordStream;
  using Device = c10::DeviceIndex;

  FakeNative() : VirtualFunctions(nullptr) {}

  std::vector<std::string> heard;  // one entry a call
  AllocationHistory::Context context;
  bool refuses_pools = false;
  int pool_uses = 1;

  // Without `override`: where torch has no such function nobody calls it.
#ifdef __clang__
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Winconsistent-missing-override"
#endif
  void markCaptureBegin(Device device) { Hear("capture begins on ", int{device}); }
  void markCaptureEnd(Device device) { Hear("capture ends on ", int{device}); }
  void setNoSplit(Device device, version::MempoolId pool) { Hear("no split on ", int{device}, " in ", pool.second); }
  void createOrIncrefPool(Device device, version::MempoolId pool, std::shared_ptr<version::Native> own) {
    createOrIncrefPool(device, pool, own.get());
  }
  void createOrIncrefPool(Device device, version::MempoolId pool, version::Native* own) {
    Hear("pool ", pool.second, " on ", int{device}, own == nullptr ? "" : " with an allocator");
  }
  void setUserMetadata(const std::string& metadata) { Hear("metadata ", metadata); }
  std::string getUserMetadata() { return "of the program"; }
  bool supportsUserMetadata() { return true; }
  void annotateMemory(const void* pointer, const std::string& metadata) { Hear(metadata, " on ", pointer); }
  AllocationHistory::Context getContextForPointer(const void*) { return context; }
  std::pair<std::size_t, std::size_t> getMemoryInfo(Device) { return {3, 4}; }
  c10::DataPtr allocateWithAddress(std::size_t bytes, void* address) {
    Hear(bytes, " bytes at ", address);
    return {};
  }
  void attachOomRejectionObserver(std::function<void(std::int64_t, std::size_t, std::size_t, std::size_t)> observer) {
    observer(1, 2, 3, 4);
  }
#ifdef __clang__
#pragma clang diagnostic pop
#endif

  // The rest has no answers.
  version::SnapshotInfo TakeSnapshot(version::MempoolId pool, bool include_traces) override {
    Hear("snapshot of ", pool.second, include_traces ? " with traces" : " without traces");
    return {};
  }
  void ConfigureHistory(const AllocationHistory::Options& options) override {
    Hear(options.max_entries, " entries without");
    for (const std::string& action : options.skip_actions) heard.back() += " " + action;
  }
  bool ContextOfBlock(const void*, AllocationHistory::Context*) override { return false; }
  bool AnnotateBlock(AllocationHistory::Entry::Action, const void*, const std::string&) override { return false; }
  void CheckMayAllocateAt(const void*) override {}
  void OnPoolMade(Device, version::MempoolId, bool) override {}
  void OnPoolNotSplit(Device, version::MempoolId) override {}
  c10::DataPtr Adopt(c10::DataPtr block, std::size_t) override { return block; }
  c10::DataPtr allocate(std::size_t) override { return {}; }
  void copy_data(void*, const void*, std::size_t) const override {}
  bool initialized() override { return false; }
  void emptyCache(version::MempoolId) override {}
  void recordStream(const c10::DataPtr&, c10::cuda::CUDAStream) override {}
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(Device) override { return {}; }
  void resetAccumulatedStats(Device) override {}
  void resetPeakStats(Device) override {}
  void* raw_alloc(std::size_t) override { return nullptr; }
  void* raw_alloc_with_stream(std::size_t, cudaStream_t) override { return nullptr; }
  void raw_delete(void*) override {}
  void init(int) override {}
  double getMemoryFraction(Device) override { return 1; }
  void setMemoryFraction(double, Device) override {}
  void enable(bool) override {}
  bool isEnabled() const override { return true; }
  void cacheInfo(Device, std::size_t*) override {}
  void* getBaseAllocation(void*, std::size_t*) override { return nullptr; }
  void beginAllocateToPool(Device, version::MempoolId pool, std::function<bool(cudaStream_t)>) override {
    if (refuses_pools) throw std::runtime_error("no pool");
    Hear("pool ", pool.second, " is open");
  }
  void endAllocateToPool(Device, version::MempoolId pool) override { Hear("pool ", pool.second, " is closed"); }
  int getPoolUseCount(Device, version::MempoolId) override { return pool_uses; }
  void releasePool(Device device, version::MempoolId pool) override {
    Hear("pool ", pool.second, " on ", int{device}, " is left");
  }
  c10::cuda::CUDACachingAllocator::ShareableHandle shareIpcHandle(void*) override { return {}; }
  std::shared_ptr<void> getIpcDevPtr(std::string) override { return nullptr; }
  void attachOutOfMemoryObserver(c10::cuda::CUDACachingAllocator::OutOfMemoryObserver) override {}
  void attachAllocatorTraceTracker(c10::cuda::CUDACachingAllocator::AllocatorTraceTracker) override {}
  void enablePeerAccess(Device, Device) override {}
  cudaError_t memcpyAsync(void*, int, const void*, int, std::size_t, cudaStream_t, bool) override {
    return cudaSuccess;
  }
  std::shared_ptr<c10::cuda::CUDACachingAllocator::AllocatorState> getCheckpointState(Device,
                                                                                      version::MempoolId) override {
    return nullptr;
  }
  c10::cuda::CUDACachingAllocator::CheckpointDelta setCheckpointPoolState(
      Device, std::shared_ptr<c10::cuda::CUDACachingAllocator::AllocatorState>) override {
    return {};
  }
  std::string name() override { return "fake"; }

 private:
  template <typename... Parts>
  void Hear(const Parts&... parts) {
    heard.push_back(c10::str(parts...));
  }
};

}  // namespace stalloc
