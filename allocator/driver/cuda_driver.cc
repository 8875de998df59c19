#include "allocator/driver/cuda_driver.h"

#include <fcntl.h>

#include <new>
#include <utility>

namespace stalloc {
namespace {

// The attribute's value; 0 where the driver does not know it.
int Attribute(const cuda::Api& api, int attribute, cuda::Device device) {
  int value = 0;
  return api.DeviceGetAttribute(&value, attribute, device) == cuda::kSuccess ? value : 0;
}

DriverStatus Unavailable(cuda::Result result, const char* call) { return {DriverCode::kUnavailable, result, call}; }

}  // namespace

// Runs `call` with the context current and this thread free of other threads' capture rules.
template <typename Call>
DriverStatus CudaDriver::InContext(cuda::Context context, const char* name, Call&& call) noexcept {
  const cuda::ContextScope current(api_, context);
  if (current.result() != cuda::kSuccess) {
    return cuda::ToStatus(current.result(), "cuCtxPushCurrent");
  }
  const cuda::RelaxedCaptureScope relaxed(api_);
  return cuda::ToStatus(std::forward<Call>(call)(), name);
}

std::unique_ptr<CudaDriver> CudaDriver::Create(int device, DriverStatus* status) noexcept {
  const cuda::Api* const api = cuda::Api::Get();
  if (api == nullptr) {
    *status = Unavailable(0, "dlopen(libcuda.so.1)");
    return nullptr;
  }
  return Create(*api, device, status);
}

std::unique_ptr<CudaDriver> CudaDriver::Create(const cuda::Api& api, int device, DriverStatus* status) noexcept {
  if (const cuda::Result result = api.Init(0); result != cuda::kSuccess) {
    *status = Unavailable(result, "cuInit");
    return nullptr;
  }
  cuda::Device cuda_device = 0;
  if (const cuda::Result result = api.DeviceGet(&cuda_device, device); result != cuda::kSuccess) {
    *status = Unavailable(result, "cuDeviceGet");
    return nullptr;
  }
  if (Attribute(api, cuda::kAttributeVirtualMemorySupported, cuda_device) == 0) {
    *status = Unavailable(cuda::kErrorNotSupported, "CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED");
    return nullptr;
  }
  cuda::Context context = nullptr;
  if (const cuda::Result result = api.DevicePrimaryCtxRetain(&context, cuda_device); result != cuda::kSuccess) {
    *status = cuda::ToStatus(result, "cuDevicePrimaryCtxRetain");
    return nullptr;
  }
  std::unique_ptr<CudaDriver> driver(new (std::nothrow) CudaDriver(api, device, cuda_device, context));
  if (driver == nullptr) {
    (void)api.DevicePrimaryCtxRelease(cuda_device);
    *status = {DriverCode::kFailed, 0, "new"};
    return nullptr;
  }
  *status = driver->ChooseProperties();
  return status->ok() ? std::move(driver) : nullptr;
}

CudaDriver::CudaDriver(const cuda::Api& api, int ordinal, cuda::Device device, cuda::Context context)
    : api_(api), device_(ordinal), cuda_device_(device), context_(context) {
  properties_.location.id = device;
  cuda::AccessDescription own;
  own.location.id = device;
  access_.push_back(own);
}

CudaDriver::~CudaDriver() { (void)api_.DevicePrimaryCtxRelease(cuda_device_); }

DriverStatus CudaDriver::ChooseProperties() noexcept {
  const bool rdma = Attribute(api_, cuda::kAttributeRdmaWithVmmSupported, cuda_device_) != 0;
  const bool exportable = Attribute(api_, cuda::kAttributePosixHandleSupported, cuda_device_) != 0;
  properties_.flags.gpu_direct_rdma_capable = rdma ? 1 : 0;
  properties_.requested_handle_types = exportable ? cuda::kHandleTypePosixFileDescriptor : cuda::kHandleTypeNone;

  std::size_t granularity = 0;
  DriverStatus status = InContext("cuMemGetAllocationGranularity", [&] {
    return api_.MemGetAllocationGranularity(&granularity, &properties_, cuda::kGranularityRecommended);
  });
  if (!status.ok()) return status;
  granularity_ = granularity;

  // Containers and some virtual GPUs announce exportable handles and then refuse to create them: find out now.
  PhysicalHandle probe = 0;
  status = Create(granularity_, &probe);
  if (!status.ok() && status.code != DriverCode::kOutOfMemory && exportable) {
    properties_.requested_handle_types = cuda::kHandleTypeNone;
    status = Create(granularity_, &probe);
  }
  if (status.code == DriverCode::kOutOfMemory) {
    return {};  // a full device says nothing about the properties
  }
  return status.ok() ? Release(probe) : status;
}

DriverStatus CudaDriver::Reserve(Bytes bytes, Address* address) noexcept {
  return InContext("cuMemAddressReserve", [&] { return api_.MemAddressReserve(address, bytes, granularity_, 0, 0); });
}

DriverStatus CudaDriver::ReleaseReservation(Address address, Bytes bytes) noexcept {
  return InContext("cuMemAddressFree", [&] { return api_.MemAddressFree(address, bytes); });
}

DriverStatus CudaDriver::Create(Bytes bytes, PhysicalHandle* handle) noexcept {
  return InContext("cuMemCreate", [&] { return api_.MemCreate(handle, bytes, &properties_, 0); });
}

DriverStatus CudaDriver::Release(PhysicalHandle handle) noexcept {
  return InContext("cuMemRelease", [&] { return api_.MemRelease(handle); });
}

DriverStatus CudaDriver::Map(Address address, Bytes bytes, PhysicalHandle handle) noexcept {
  return InContext("cuMemMap", [&] { return api_.MemMap(address, bytes, 0, handle, 0); });
}

DriverStatus CudaDriver::Unmap(Address address, Bytes bytes) noexcept {
  return InContext("cuMemUnmap", [&] { return api_.MemUnmap(address, bytes); });
}

DriverStatus CudaDriver::SetAccess(Address address, Bytes bytes) noexcept {
  const std::lock_guard lock(access_mutex_);
  return InContext("cuMemSetAccess", [&] { return api_.MemSetAccess(address, bytes, access_.data(), access_.size()); });
}

DriverStatus CudaDriver::Export(PhysicalHandle handle, int* descriptor) noexcept {
  constexpr const char* kCall = "cuMemExportToShareableHandle";
  if (properties_.requested_handle_types == cuda::kHandleTypeNone) {
    return cuda::ToStatus(cuda::kErrorNotSupported, kCall);
  }
  const DriverStatus status = InContext(kCall, [&] {
    return api_.MemExportToShareableHandle(descriptor, handle, cuda::kHandleTypePosixFileDescriptor, 0);
  });
  if (status.ok()) {
    (void)fcntl(*descriptor, F_SETFD, FD_CLOEXEC);  // a program that this one starts must not hold the memory
  }
  return status;
}

DriverStatus CudaDriver::Retain(Address address, MappedMemory* mapping) noexcept {
  constexpr const char* kCall = "cuMemRetainAllocationHandle";
  if (api_.MemRetainAllocationHandle == nullptr || api_.MemGetAddressRange == nullptr) {
    return {DriverCode::kUnavailable, 0, kCall};
  }
  cuda::DevicePointer base = 0;
  std::size_t bytes = 0;
  DriverStatus status =
      InContext("cuMemGetAddressRange", [&] { return api_.MemGetAddressRange(&base, &bytes, address); });
  if (!status.ok()) return status;
  cuda::AllocationHandle handle = 0;
  status = InContext(kCall, [&] { return api_.MemRetainAllocationHandle(&handle, reinterpret_cast<void*>(address)); });
  if (status.ok()) {
    *mapping = {base, bytes, handle};
  }
  return status;
}

// The copy is given to the legacy default stream, which waits for blocking streams only.
DriverStatus CudaDriver::Copy(Address to, Address from, Bytes bytes) noexcept {
  if (api_.MemcpyDtoD == nullptr) {
    return {DriverCode::kUnavailable, 0, "cuMemcpyDtoD"};
  }
  if (const DriverStatus status = Synchronize(); !status.ok()) return status;
  const DriverStatus status = InContext("cuMemcpyDtoD", [&] { return api_.MemcpyDtoD(to, from, bytes); });
  return status.ok() ? Synchronize() : status;
}

DriverStatus CudaDriver::Fill(Address address, Bytes bytes, unsigned char value, StreamHandle stream) noexcept {
  return InContext("cuMemsetD8Async",
                   [&] { return api_.MemsetD8Async(address, value, bytes, cuda::ToStream(stream)); });
}

DriverStatus CudaDriver::GetMemoryInfo(MemoryInfo* info) noexcept {
  std::size_t free = 0;
  std::size_t total = 0;
  const DriverStatus status = InContext("cuMemGetInfo", [&] { return api_.MemGetInfo(&free, &total); });
  if (status.ok()) {
    *info = {free, total};
  }
  return status;
}

DriverStatus CudaDriver::Synchronize() noexcept {
  const CaptureGate::Passage passage(captures_);
  if (!passage) {
    return {DriverCode::kFailed, cuda::kErrorStreamCaptureUnsupported, "cuCtxSynchronize"};
  }
  return InContext("cuCtxSynchronize", [&] { return api_.CtxSynchronize(); });
}

DriverStatus CudaDriver::SynchronizeOthers() noexcept {
  const CaptureGate::Passage passage(captures_);
  if (!passage) {
    return {DriverCode::kFailed, cuda::kErrorStreamCaptureUnsupported, "cuCtxSynchronize"};
  }
  int count = 0;
  DriverStatus status = cuda::ToStatus(api_.DeviceGetCount(&count), "cuDeviceGetCount");
  for (int ordinal = 0; ordinal < count && status.ok(); ++ordinal) {
    if (ordinal != device_) status = SynchronizeOther(ordinal);
  }
  return status;
}

// A device without a context has no work, and is not to get one for this.
DriverStatus CudaDriver::SynchronizeOther(int ordinal) noexcept {
  cuda::Device device = 0;
  unsigned flags = 0;
  int active = 0;
  cuda::Context context = nullptr;
  cuda::Result result = api_.DeviceGet(&device, ordinal);
  if (result == cuda::kSuccess) result = api_.DevicePrimaryCtxGetState(device, &flags, &active);
  if (result != cuda::kSuccess || active == 0) {
    return cuda::ToStatus(result, "cuDevicePrimaryCtxGetState");
  }
  if (result = api_.DevicePrimaryCtxRetain(&context, device); result != cuda::kSuccess) {
    return cuda::ToStatus(result, "cuDevicePrimaryCtxRetain");
  }
  const DriverStatus status = InContext(context, "cuCtxSynchronize", [&] { return api_.CtxSynchronize(); });
  (void)api_.DevicePrimaryCtxRelease(device);
  return status;
}

DriverStatus CudaDriver::EnablePeer(int peer_device) noexcept {
  cuda::Device peer = 0;
  if (const cuda::Result result = api_.DeviceGet(&peer, peer_device); result != cuda::kSuccess) {
    return cuda::ToStatus(result, "cuDeviceGet");
  }
  const std::lock_guard lock(access_mutex_);
  for (const cuda::AccessDescription& known : access_) {
    if (known.location.id == peer) {
      return {};
    }
  }
  int can_access = 0;
  if (const cuda::Result result = api_.DeviceCanAccessPeer(&can_access, peer, cuda_device_); result != cuda::kSuccess) {
    return cuda::ToStatus(result, "cuDeviceCanAccessPeer");
  }
  if (can_access == 0) {
    return {DriverCode::kInvalid, 0, "cuDeviceCanAccessPeer"};
  }
  cuda::AccessDescription description;
  description.location.id = peer;
  access_.push_back(description);
  return {};
}

}  // namespace stalloc
