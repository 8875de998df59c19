#include "allocator/capi/cuda_devices.h"

#include <memory>
#include <string>

#include "allocator/capi/allocation_failure.h"
#include "allocator/capi/cuda_pool.h"
#include "allocator/capi/cuda_stream_fence.h"
#include "allocator/capi/global_session.h"
#include "allocator/driver/cuda_copies.h"
#include "allocator/driver/cuda_description.h"
#include "allocator/driver/cuda_driver.h"

namespace stalloc {
namespace {

Fingerprint FingerprintOf(CudaDriver& driver) {
  const CudaDescription device = DescribeCuda(driver.api(), driver.device());
  Fingerprint fingerprint;
  fingerprint.device_name = device.name;
  fingerprint.device_bytes = device.bytes;
  fingerprint.driver_version = device.driver_version;
  return fingerprint;
}

[[noreturn]] void Refuse(const std::string& why) { throw AllocationFailure(why); }

}  // namespace

struct CudaDevices::Device {
  explicit Device(std::unique_ptr<CudaDriver> with)
      : driver(std::move(with)),
        events(driver->api(), driver->context()),
        fence(events),
        copies(*driver, events),
        pool(driver->api(), driver->device(), driver->context(), events) {}

  std::unique_ptr<CudaDriver> driver;
  CudaEvents events;
  CudaStreamFence fence;
  CudaCopies copies;
  CudaPool pool;
  DeviceRuntime* runtime = nullptr;  // the session's
};

CudaDevices& CudaDevices::Instance() noexcept {
  static CudaDevices* const devices = new CudaDevices;
  return *devices;
}

CudaDevices::Device& CudaDevices::Get(int ordinal) {
  if (ordinal < 0 || ordinal >= kMostDevices) Refuse("no such CUDA device: " + std::to_string(ordinal));
  Device* const device = devices_[ordinal].load(std::memory_order_acquire);
  return device != nullptr ? *device : Open(ordinal);
}

CudaDevices::Device& CudaDevices::Open(int ordinal) {
  const std::lock_guard lock(mutex_);
  if (Device* const opened = devices_[ordinal].load(std::memory_order_acquire); opened != nullptr) return *opened;
  const Result<Session*> session = OpenGlobalSession({});
  if (!session.ok()) Refuse(session.error());
  DriverStatus status;
  std::unique_ptr<CudaDriver> driver = CudaDriver::Create(ordinal, &status);
  if (driver == nullptr) {
    const std::string reason = cuda::Api::LoadError();
    Refuse("CUDA device " + std::to_string(ordinal) + " cannot be used: " +
           (reason.empty() ? std::string(status.call) + " failed, code " + std::to_string(status.native) : reason));
  }
  auto device = std::make_unique<Device>(std::move(driver));
  device->runtime = session.value()->AddDevice(ordinal, &device->pool, device->driver.get(), &device->fence,
                                               FingerprintOf(*device->driver), nullptr, nullptr, &device->copies);
  if (device->runtime == nullptr) Refuse(session.value()->failure());
  devices_[ordinal].store(device.get(), std::memory_order_release);
  return *device.release();
}

void* CudaDevices::Allocate(Bytes requested, int ordinal, StreamHandle stream) {
  Device& device = Get(ordinal);
  const Origin origin = device.events.Capturing(stream) ? Origin::kCaptured : Origin::kProgram;
  try {
    return device.runtime->Allocate(requested, stream, origin);
  } catch (AllocationFailure& failure) {
    for (const std::string& line : device.runtime->ExplainOutOfMemory(requested, stream)) failure.Append(line);
    throw;
  } catch (const AsleepError& asleep) {
    Refuse(asleep.what());
  }
}

void CudaDevices::Free(void* pointer, int ordinal) noexcept {
  if (ordinal < 0 || ordinal >= kMostDevices) return;
  Device* const device = devices_[ordinal].load(std::memory_order_acquire);
  if (device != nullptr) device->runtime->Free(pointer);
}

void CudaDevices::RecordStream(void* pointer, StreamHandle stream) noexcept {
  for (const std::atomic<Device*>& slot : devices_) {
    Device* const device = slot.load(std::memory_order_acquire);
    if (device == nullptr) continue;
    DeviceRuntime& runtime = *device->runtime;
    if (!runtime.Owns(pointer) && runtime.UpstreamBlockBytes(pointer) == 0) continue;
    runtime.RecordStream(pointer, device->events.NameOf(stream));
    return;
  }
}

}  // namespace stalloc
