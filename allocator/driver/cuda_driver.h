// CudaDriver: VmmDriver over the CUDA driver API, in the device's primary context (the one that PyTorch uses).
//
// Memory is pinned device memory, made for GPUDirect RDMA where the device can, and exportable as a file descriptor
// where the device can, since NCCL, UCX and RDMA stacks want both. Thread-safe. Calls are legal while a stream is
// captured; Synchronize then fails at once. When the driver is unloading, or in a forked child, every call gives
// kShuttingDown.
#pragma once

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "allocator/driver/capture_gate.h"
#include "allocator/driver/cuda_api.h"
#include "allocator/driver/vmm_driver.h"

namespace stalloc {

class CudaDriver final : public VmmDriver {
 public:
  // Initialises the driver and retains the device's primary context. Null on failure: `status` has kUnavailable where
  // there is no driver, no such device or no virtual memory management on it.
  static std::unique_ptr<CudaDriver> Create(int device, DriverStatus* status) noexcept;
  // The same over a table of the caller's choice, which outlives the driver. For tests.
  static std::unique_ptr<CudaDriver> Create(const cuda::Api& api, int device, DriverStatus* status) noexcept;
  ~CudaDriver() override;
  CudaDriver(const CudaDriver&) = delete;
  CudaDriver& operator=(const CudaDriver&) = delete;

  [[nodiscard]] Bytes Granularity() const noexcept override { return granularity_; }
  [[nodiscard]] const char* Name() const noexcept override { return "cuda"; }

  DriverStatus Reserve(Bytes bytes, Address* address) noexcept override;
  DriverStatus ReleaseReservation(Address address, Bytes bytes) noexcept override;
  DriverStatus Create(Bytes bytes, PhysicalHandle* handle) noexcept override;
  DriverStatus Release(PhysicalHandle handle) noexcept override;
  DriverStatus Map(Address address, Bytes bytes, PhysicalHandle handle) noexcept override;
  DriverStatus Unmap(Address address, Bytes bytes) noexcept override;
  DriverStatus SetAccess(Address address, Bytes bytes) noexcept override;
  DriverStatus Export(PhysicalHandle handle, int* descriptor) noexcept override;
  DriverStatus Retain(Address address, MappedMemory* mapping) noexcept override;
  DriverStatus Copy(Address to, Address from, Bytes bytes) noexcept override;
  DriverStatus Fill(Address address, Bytes bytes, unsigned char value, StreamHandle stream) noexcept override;
  DriverStatus GetMemoryInfo(MemoryInfo* info) noexcept override;
  DriverStatus Synchronize() noexcept override;
  // Those whose primary context is there.
  DriverStatus SynchronizeOthers() noexcept override;

  // From the next SetAccess on, `peer_device` reads and writes this device's mappings too; what is mapped already needs
  // a new SetAccess (Arena::RefreshAccess, PageHeap::RefreshAccess). kInvalid when the two devices have no peer link.
  DriverStatus EnablePeer(int peer_device) noexcept;
  // Other devices read and write this one's mappings.
  [[nodiscard]] bool HasPeers() const noexcept {
    const std::lock_guard lock(access_mutex_);
    return access_.size() > 1;
  }

  // Who says when streams are captured; outlives this. Null (at first): none is. Call before other threads do.
  void SetCaptureGate(CaptureGate* captures) noexcept { captures_ = captures; }

  [[nodiscard]] int device() const noexcept { return device_; }
  [[nodiscard]] cuda::Context context() const noexcept { return context_; }
  [[nodiscard]] const cuda::Api& api() const noexcept { return api_; }
  // The properties that Create requests of the driver.
  [[nodiscard]] const cuda::AllocationProperties& properties() const noexcept { return properties_; }

 private:
  CudaDriver(const cuda::Api& api, int ordinal, cuda::Device device, cuda::Context context);
  // Chooses RDMA capability and handle type, and proves them by creating one granule. Called once.
  DriverStatus ChooseProperties() noexcept;
  DriverStatus SynchronizeOther(int ordinal) noexcept;
  template <typename Call>
  DriverStatus InContext(cuda::Context context, const char* name, Call&& call) noexcept;
  template <typename Call>
  DriverStatus InContext(const char* name, Call&& call) noexcept {
    return InContext(context_, name, std::forward<Call>(call));
  }

  const cuda::Api& api_;
  const int device_;  // ordinal
  const cuda::Device cuda_device_;
  const cuda::Context context_;  // retained
  cuda::AllocationProperties properties_;
  Bytes granularity_ = 0;
  CaptureGate* captures_ = nullptr;
  mutable std::mutex access_mutex_;
  std::vector<cuda::AccessDescription> access_;  // guarded by access_mutex_; [0] is this device
};

}  // namespace stalloc
