// CudaApi: the CUDA driver's functions, resolved at run time, so that this library loads where there is no GPU driver.
//
//   const cuda::Api* api = cuda::Api::Get();      // null: no driver on this machine; LoadError() says why
//   if (api != nullptr && api->Init(0) == cuda::kSuccess) ...
//
// The lists below give each member the exact exported symbol; all of the first exist since CUDA 11.3. Thread-safe; the
// library stays loaded for the life of the process.
#pragma once

#include "allocator/driver/cuda_abi.h"
#include "allocator/driver/vmm_driver.h"
#include "proto/model/units.h"

// X(member, exported symbol, parameters)
#define STALLOC_CUDA_FUNCTIONS(X)                                                                                      \
  X(Init, "cuInit", (unsigned flags))                                                                                  \
  X(DriverGetVersion, "cuDriverGetVersion", (int* version))                                                            \
  X(GetErrorName, "cuGetErrorName", (Result error, const char** name))                                                 \
  X(GetErrorString, "cuGetErrorString", (Result error, const char** text))                                             \
  X(DeviceGet, "cuDeviceGet", (Device * device, int ordinal))                                                          \
  X(DeviceGetCount, "cuDeviceGetCount", (int* count))                                                                  \
  X(DeviceGetName, "cuDeviceGetName", (char* name, int length, Device device))                                         \
  X(DeviceGetAttribute, "cuDeviceGetAttribute", (int* value, int attribute, Device device))                            \
  X(DeviceTotalMem, "cuDeviceTotalMem_v2", (std::size_t * bytes, Device device))                                       \
  X(DeviceCanAccessPeer, "cuDeviceCanAccessPeer", (int* can_access, Device device, Device peer))                       \
  X(DevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", (Context * context, Device device))                            \
  X(DevicePrimaryCtxGetState, "cuDevicePrimaryCtxGetState", (Device device, unsigned* flags, int* active))             \
  X(DevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2", (Device device))                                          \
  X(CtxGetCurrent, "cuCtxGetCurrent", (Context * context))                                                             \
  X(CtxPushCurrent, "cuCtxPushCurrent_v2", (Context context))                                                          \
  X(CtxPopCurrent, "cuCtxPopCurrent_v2", (Context * context))                                                          \
  X(CtxGetDevice, "cuCtxGetDevice", (Device * device))                                                                 \
  X(CtxSynchronize, "cuCtxSynchronize", ())                                                                            \
  X(MemGetInfo, "cuMemGetInfo_v2", (std::size_t * free, std::size_t * total))                                          \
  X(MemAddressReserve, "cuMemAddressReserve",                                                                          \
    (DevicePointer * address, std::size_t bytes, std::size_t alignment, DevicePointer hint, std::uint64_t flags))      \
  X(MemAddressFree, "cuMemAddressFree", (DevicePointer address, std::size_t bytes))                                    \
  X(MemCreate, "cuMemCreate",                                                                                          \
    (AllocationHandle * handle, std::size_t bytes, const AllocationProperties* properties, std::uint64_t flags))       \
  X(MemRelease, "cuMemRelease", (AllocationHandle handle))                                                             \
  X(MemMap, "cuMemMap",                                                                                                \
    (DevicePointer address, std::size_t bytes, std::size_t offset, AllocationHandle handle, std::uint64_t flags))      \
  X(MemUnmap, "cuMemUnmap", (DevicePointer address, std::size_t bytes))                                                \
  X(MemSetAccess, "cuMemSetAccess",                                                                                    \
    (DevicePointer address, std::size_t bytes, const AccessDescription* descriptions, std::size_t count))              \
  X(MemExportToShareableHandle, "cuMemExportToShareableHandle",                                                        \
    (void* shareable, AllocationHandle handle, int handle_type, std::uint64_t flags))                                  \
  X(MemGetAllocationGranularity, "cuMemGetAllocationGranularity",                                                      \
    (std::size_t * bytes, const AllocationProperties* properties, int option))                                         \
  X(MemAllocAsync, "cuMemAllocAsync", (DevicePointer * pointer, std::size_t bytes, Stream stream))                     \
  X(MemFreeAsync, "cuMemFreeAsync", (DevicePointer pointer, Stream stream))                                            \
  X(DeviceGetMemPool, "cuDeviceGetMemPool", (MemoryPool * pool, Device device))                                        \
  X(DeviceGetDefaultMemPool, "cuDeviceGetDefaultMemPool", (MemoryPool * pool, Device device))                          \
  X(MemPoolGetAttribute, "cuMemPoolGetAttribute", (MemoryPool pool, int attribute, void* value))                       \
  X(MemPoolSetAttribute, "cuMemPoolSetAttribute", (MemoryPool pool, int attribute, void* value))                       \
  X(MemPoolTrimTo, "cuMemPoolTrimTo", (MemoryPool pool, std::size_t keep_bytes))                                       \
  X(MemcpyHtoD, "cuMemcpyHtoD_v2", (DevicePointer to, const void* from, std::size_t bytes))                            \
  X(MemcpyDtoH, "cuMemcpyDtoH_v2", (void* to, DevicePointer from, std::size_t bytes))                                  \
  X(MemsetD8Async, "cuMemsetD8Async", (DevicePointer to, unsigned char value, std::size_t bytes, Stream stream))       \
  X(MemcpyDtoHAsync, "cuMemcpyDtoHAsync_v2", (void* to, DevicePointer from, std::size_t bytes, Stream stream))         \
  X(MemcpyHtoDAsync, "cuMemcpyHtoDAsync_v2", (DevicePointer to, const void* from, std::size_t bytes, Stream stream))   \
  X(MemHostRegister, "cuMemHostRegister_v2", (void* pointer, std::size_t bytes, unsigned flags))                       \
  X(MemHostUnregister, "cuMemHostUnregister", (void* pointer))                                                         \
  X(MemAlloc, "cuMemAlloc_v2", (DevicePointer * pointer, std::size_t bytes))                                           \
  X(MemAllocHost, "cuMemAllocHost_v2", (void** pointer, std::size_t bytes))                                            \
  X(ModuleLoadData, "cuModuleLoadData", (Module * module, const void* image))                                          \
  X(ModuleGetFunction, "cuModuleGetFunction", (Function * function, Module module, const char* name))                  \
  X(LaunchKernel, "cuLaunchKernel",                                                                                    \
    (Function function, unsigned blocks_x, unsigned blocks_y, unsigned blocks_z, unsigned threads_x,                   \
     unsigned threads_y, unsigned threads_z, unsigned shared_bytes, Stream stream, void** parameters, void** extra))   \
  X(EventCreate, "cuEventCreate", (Event * event, unsigned flags))                                                     \
  X(EventRecord, "cuEventRecord", (Event event, Stream stream))                                                        \
  X(EventQuery, "cuEventQuery", (Event event))                                                                         \
  X(EventSynchronize, "cuEventSynchronize", (Event event))                                                             \
  X(EventDestroy, "cuEventDestroy_v2", (Event event))                                                                  \
  X(StreamCreate, "cuStreamCreate", (Stream * stream, unsigned flags))                                                 \
  X(StreamDestroy, "cuStreamDestroy_v2", (Stream stream))                                                              \
  X(StreamSynchronize, "cuStreamSynchronize", (Stream stream))                                                         \
  X(StreamWaitEvent, "cuStreamWaitEvent", (Stream stream, Event event, unsigned flags))                                \
  X(StreamGetCtx, "cuStreamGetCtx", (Stream stream, Context * context))                                                \
  X(StreamIsCapturing, "cuStreamIsCapturing", (Stream stream, int* status))                                            \
  X(StreamGetCaptureInfo, "cuStreamGetCaptureInfo_v2",                                                                 \
    (Stream stream, int* status, std::uint64_t* id, Graph* graph, const GraphNode** dependencies, std::size_t* count)) \
  X(StreamBeginCapture, "cuStreamBeginCapture_v2", (Stream stream, int mode))                                          \
  X(StreamEndCapture, "cuStreamEndCapture", (Stream stream, Graph * graph))                                            \
  X(GraphDestroy, "cuGraphDestroy", (Graph graph))                                                                     \
  X(ThreadExchangeStreamCaptureMode, "cuThreadExchangeStreamCaptureMode", (int* mode))

// For newer drivers, or what lending graphs' pools alone needs; null where they are missing.
#define STALLOC_CUDA_OPTIONAL_FUNCTIONS(X)                                                                             \
  X(MemRetainAllocationHandle, "cuMemRetainAllocationHandle", (AllocationHandle * handle, void* address))              \
  X(MemGetAddressRange, "cuMemGetAddressRange_v2", (DevicePointer * base, std::size_t * bytes, DevicePointer address)) \
  X(MemcpyDtoD, "cuMemcpyDtoD_v2", (DevicePointer to, DevicePointer from, std::size_t bytes))                          \
  X(CtxRecordEvent, "cuCtxRecordEvent", (Context context, Event event))                                                \
  X(CtxWaitEvent, "cuCtxWaitEvent", (Context context, Event event))

namespace stalloc::cuda {

struct Api {
#define STALLOC_CUDA_MEMBER(member, symbol, parameters) Result(*member) parameters = nullptr;
  STALLOC_CUDA_FUNCTIONS(STALLOC_CUDA_MEMBER)
  STALLOC_CUDA_OPTIONAL_FUNCTIONS(STALLOC_CUDA_MEMBER)
#undef STALLOC_CUDA_MEMBER

  // The process's table, resolved from libcuda.so.1 at the first call; null where that cannot be loaded. Does not call
  // Init: that is the caller's choice (it must not happen before a fork).
  static const Api* Get() noexcept;
  // Why Get() gave null; "" if it did not. Static storage.
  static const char* LoadError() noexcept;

  // Resolves every member from `library`; false with a line in `error` naming the library or the first missing symbol.
  // For Get() and for tests.
  static bool Load(const char* library, Api* api, char* error, std::size_t error_bytes) noexcept;
};

[[nodiscard]] inline Stream ToStream(StreamHandle stream) noexcept { return reinterpret_cast<Stream>(stream); }

// The driver's own name of an error, "CUDA_ERROR_OUT_OF_MEMORY"; never null.
[[nodiscard]] const char* ErrorName(const Api& api, Result result) noexcept;

[[nodiscard]] DriverStatus ToStatus(Result result, const char* call) noexcept;

// For the life of the object this thread may make calls that a stream capture in global mode (by whatever thread) would
// forbid, and so would break the capture: event queries, memory mapping. They are not captured.
class RelaxedCaptureScope {
 public:
  explicit RelaxedCaptureScope(const Api& api) noexcept;
  ~RelaxedCaptureScope();
  RelaxedCaptureScope(const RelaxedCaptureScope&) = delete;
  RelaxedCaptureScope& operator=(const RelaxedCaptureScope&) = delete;

 private:
  const Api& api_;
  int mode_ = kCaptureModeRelaxed;
};

// Makes `context` current on this thread for the life of the object, unless it is already.
class ContextScope {
 public:
  ContextScope(const Api& api, Context context) noexcept;
  ~ContextScope();
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

  [[nodiscard]] Result result() const noexcept { return result_; }

 private:
  const Api& api_;
  bool pushed_ = false;
  Result result_ = kSuccess;
};

}  // namespace stalloc::cuda
