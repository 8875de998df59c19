#include "allocator/torch/cuda_device_table.h"

#include <c10/cuda/CUDAGuard.h>

namespace stalloc {

CudaDevice* CudaDeviceTable::Owner(const void* pointer) const noexcept {
  if (CudaDevice* only = devices_.Only(); only != nullptr) return only;
  CudaDevice* owner = Server(pointer);
  if (owner != nullptr) return owner;
  ForEach([&](CudaDevice& device) {
    if (owner == nullptr && device.Knows(pointer)) owner = &device;
  });
  return owner;
}

CudaDevice* CudaDeviceTable::Server(const void* pointer) const noexcept {
  CudaDevice* server = nullptr;
  ForEach([&](CudaDevice& device) {
    if (server == nullptr && device.Serves(pointer)) server = &device;
  });
  return server;
}

void CudaDeviceTable::EnablePeer(c10::DeviceIndex device, c10::DeviceIndex device_to_access) {
  const std::lock_guard lock(mutex_);
  peers_.emplace_back(device, device_to_access);
  if (CudaDevice* target = Find(device_to_access); target != nullptr) target->EnablePeer(device);
}

CudaDevice& CudaDeviceTable::Make(c10::DeviceIndex index) {
  TORCH_CHECK(index >= 0 && index < C10_COMPILE_TIME_MAX_GPUS && environment_.native->initialized(),
              "Invalid device argument ", index, ": did you call init?");
  const std::lock_guard lock(mutex_);
  if (CudaDevice* made = Find(index); made != nullptr) return *made;
  std::vector<c10::DeviceIndex> peers;
  for (const auto& [device, device_to_access] : peers_) {
    if (device_to_access == index) peers.push_back(device);
  }
  const c10::cuda::CUDAGuard guard(index);
  auto* device = new CudaDevice(environment_, index, peers);
  devices_.Add(static_cast<std::size_t>(index), device);
  return *device;
}

}  // namespace stalloc
