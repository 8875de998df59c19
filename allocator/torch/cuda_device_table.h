// CudaDeviceTable: the CudaDevice of each CUDA ordinal, made at its first use, and whose a block is. Thread-safe.
#pragma once

#include <c10/cuda/CUDAMacros.h>

#include <mutex>
#include <utility>
#include <vector>

#include "allocator/base/ordinal_table.h"
#include "allocator/torch/cuda_device.h"

namespace stalloc {

class CudaDeviceTable {
 public:
  explicit CudaDeviceTable(CudaDevice::Environment environment) : environment_(std::move(environment)) {}

  // Makes it if need be (that maps the plan's arena). REQUIRES: CUDA is initialised and has this device.
  CudaDevice& Get(c10::DeviceIndex index) {
    CudaDevice* device = Find(index);
    return device != nullptr ? *device : Make(index);
  }
  // Null if nothing was allocated there yet.
  [[nodiscard]] CudaDevice* Find(c10::DeviceIndex index) const noexcept { return devices_.Find(index); }
  // The device whose block starts at the address; null if none is known. With one device in use it is that one,
  // unasked.
  [[nodiscard]] CudaDevice* Owner(const void* pointer) const noexcept;
  // The device whose arena holds the address, or null.
  [[nodiscard]] CudaDevice* Server(const void* pointer) const noexcept;

  // `device` may access memory of `device_to_access` from now on, also what is mapped later.
  void EnablePeer(c10::DeviceIndex device, c10::DeviceIndex device_to_access);

  template <typename Visit>
  void ForEach(Visit&& visit) const {
    for (CudaDevice* const device : devices_.All()) visit(*device);
  }

 private:
  CudaDevice& Make(c10::DeviceIndex index);

  const CudaDevice::Environment environment_;
  OrdinalTable<CudaDevice, C10_COMPILE_TIME_MAX_GPUS> devices_;
  std::mutex mutex_;                                                  // held while a device is made; guards peers_
  std::vector<std::pair<c10::DeviceIndex, c10::DeviceIndex>> peers_;  // device, device_to_access
};

}  // namespace stalloc
