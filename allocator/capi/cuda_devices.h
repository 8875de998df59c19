// The CUDA devices of libstalloc.so: driver, events, pool and runtime of each, composed at its first request.
//
// Thread-safe. Nothing here is destroyed before the process is gone.
#pragma once

#include <atomic>
#include <mutex>

#include "allocator/runtime/device_runtime.h"

namespace stalloc {

class CudaDevices {
 public:
  static CudaDevices& Instance() noexcept;

  // Opens the session and the device if need be. Throws AllocationFailure.
  void* Allocate(Bytes requested, int device, StreamHandle stream);
  void Free(void* pointer, int device) noexcept;
  // The device is found by the address.
  void RecordStream(void* pointer, StreamHandle stream) noexcept;

 private:
  struct Device;
  static constexpr int kMostDevices = 64;

  CudaDevices() = default;
  Device& Get(int ordinal);
  Device& Open(int ordinal);

  std::atomic<Device*> devices_[kMostDevices] = {};
  std::mutex mutex_;  // one opens at a time
};

}  // namespace stalloc
