// cuda_abi.h against NVIDIA's cuda.h: every size, offset, number and exported name. Built where a cuda.h is found.
#include "allocator/driver/cuda_abi.h"

#include <cuda.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <type_traits>

#include "allocator/driver/cuda_api.h"

namespace stalloc::cuda {
namespace {

static_assert(sizeof(Result) == sizeof(CUresult) && sizeof(Device) == sizeof(CUdevice));
static_assert(sizeof(DevicePointer) == sizeof(CUdeviceptr));
static_assert(sizeof(AllocationHandle) == sizeof(CUmemGenericAllocationHandle));
static_assert(sizeof(Stream) == sizeof(CUstream) && sizeof(Event) == sizeof(CUevent));

static_assert(sizeof(Location) == sizeof(CUmemLocation));
static_assert(offsetof(Location, type) == offsetof(CUmemLocation, type));
static_assert(offsetof(Location, id) == offsetof(CUmemLocation, id));
static_assert(sizeof(AccessDescription) == sizeof(CUmemAccessDesc));
static_assert(offsetof(AccessDescription, flags) == offsetof(CUmemAccessDesc, flags));
static_assert(sizeof(AllocationProperties) == sizeof(CUmemAllocationProp));
static_assert(offsetof(AllocationProperties, type) == offsetof(CUmemAllocationProp, type));
static_assert(offsetof(AllocationProperties, requested_handle_types) ==
              offsetof(CUmemAllocationProp, requestedHandleTypes));
static_assert(offsetof(AllocationProperties, location) == offsetof(CUmemAllocationProp, location));
static_assert(offsetof(AllocationProperties, flags) == offsetof(CUmemAllocationProp, allocFlags));
static_assert(offsetof(AllocationProperties, flags) + offsetof(AllocationProperties::Flags, gpu_direct_rdma_capable) ==
              offsetof(CUmemAllocationProp, allocFlags.gpuDirectRDMACapable));

static_assert(kSuccess == CUDA_SUCCESS && kErrorInvalidValue == CUDA_ERROR_INVALID_VALUE);
static_assert(kErrorOutOfMemory == CUDA_ERROR_OUT_OF_MEMORY && kErrorNotInitialized == CUDA_ERROR_NOT_INITIALIZED);
static_assert(kErrorDeinitialized == CUDA_ERROR_DEINITIALIZED && kErrorStubLibrary == CUDA_ERROR_STUB_LIBRARY);
static_assert(kErrorNoDevice == CUDA_ERROR_NO_DEVICE && kErrorInvalidDevice == CUDA_ERROR_INVALID_DEVICE);
static_assert(kErrorInvalidContext == CUDA_ERROR_INVALID_CONTEXT && kErrorAlreadyMapped == CUDA_ERROR_ALREADY_MAPPED);
static_assert(kErrorInvalidHandle == CUDA_ERROR_INVALID_HANDLE && kErrorNotReady == CUDA_ERROR_NOT_READY);
static_assert(kErrorContextIsDestroyed == CUDA_ERROR_CONTEXT_IS_DESTROYED);
static_assert(kErrorNotPermitted == CUDA_ERROR_NOT_PERMITTED && kErrorNotSupported == CUDA_ERROR_NOT_SUPPORTED);
static_assert(kErrorStreamCaptureUnsupported == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
static_assert(kErrorStreamCaptureImplicit == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);

static_assert(kAttributeComputeCapabilityMajor == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
static_assert(kAttributeComputeCapabilityMinor == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
static_assert(kAttributeVirtualMemorySupported == CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
static_assert(kAttributePosixHandleSupported == CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
static_assert(kAttributeRdmaWithVmmSupported == CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED);
static_assert(kAttributeMemoryPoolsSupported == CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED);

static_assert(kAllocationTypePinned == CU_MEM_ALLOCATION_TYPE_PINNED);
static_assert(kLocationTypeDevice == CU_MEM_LOCATION_TYPE_DEVICE);
static_assert(kHandleTypeNone == CU_MEM_HANDLE_TYPE_NONE);
static_assert(kHandleTypePosixFileDescriptor == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
static_assert(kAccessReadWrite == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
static_assert(kGranularityMinimum == CU_MEM_ALLOC_GRANULARITY_MINIMUM);
static_assert(kGranularityRecommended == CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);

static_assert(kPoolReleaseThreshold == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD);
static_assert(kPoolReservedCurrent == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
static_assert(kPoolReservedHigh == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH);
static_assert(kPoolUsedCurrent == CU_MEMPOOL_ATTR_USED_MEM_CURRENT && kPoolUsedHigh == CU_MEMPOOL_ATTR_USED_MEM_HIGH);
static_assert(kEventDisableTiming == CU_EVENT_DISABLE_TIMING);
static_assert(kStreamNonBlocking == CU_STREAM_NON_BLOCKING);
static_assert(kHostRegisterPortable == CU_MEMHOSTREGISTER_PORTABLE);
static_assert(kCaptureStatusNone == CU_STREAM_CAPTURE_STATUS_NONE);
static_assert(kCaptureStatusActive == CU_STREAM_CAPTURE_STATUS_ACTIVE);
static_assert(kCaptureModeGlobal == CU_STREAM_CAPTURE_MODE_GLOBAL);
static_assert(kCaptureModeThreadLocal == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
static_assert(kCaptureModeRelaxed == CU_STREAM_CAPTURE_MODE_RELAXED);

// Where ours says `int` or a pointer, the real function has an enum or another pointer: the same in the calling
// convention.
template <typename Ours, typename Real>
constexpr bool kPassedAlike = sizeof(Ours) == sizeof(Real) && std::is_pointer_v<Ours> == std::is_pointer_v<Real>;
template <typename Ours, typename Real>
struct SameCall : std::false_type {};
template <typename... Ours, typename... Real>
struct SameCall<Result (*)(Ours...), CUresult (*)(Real...)>
    : std::bool_constant<(sizeof...(Ours) == sizeof...(Real)) && (kPassedAlike<Ours, Real> && ...)> {};

#define STALLOC_EXPAND_NAME(name) #name
#define STALLOC_NAME(name) STALLOC_EXPAND_NAME(name)
// The parameters agree with cuda.h, and so does the versioned name that cuda.h's macros choose.
#define STALLOC_EXPECT_CALL(member, function)                                              \
  EXPECT_TRUE((SameCall<decltype(Api::member), decltype(&function)>::value)) << #function; \
  EXPECT_EQ(SymbolOf(#member), std::string(STALLOC_NAME(function)))

std::string SymbolOf(const char* member) {
#define STALLOC_SYMBOL(name, symbol, parameters) \
  if (std::strcmp(member, #name) == 0) {         \
    return symbol;                               \
  }
  STALLOC_CUDA_FUNCTIONS(STALLOC_SYMBOL)
#undef STALLOC_SYMBOL
  return "";
}

TEST(CudaAbiTest, EveryFunctionHasTheRealParametersAndName) {
  STALLOC_EXPECT_CALL(Init, cuInit);
  STALLOC_EXPECT_CALL(DriverGetVersion, cuDriverGetVersion);
  STALLOC_EXPECT_CALL(GetErrorName, cuGetErrorName);
  STALLOC_EXPECT_CALL(GetErrorString, cuGetErrorString);
  STALLOC_EXPECT_CALL(DeviceGet, cuDeviceGet);
  STALLOC_EXPECT_CALL(DeviceGetCount, cuDeviceGetCount);
  STALLOC_EXPECT_CALL(DeviceGetName, cuDeviceGetName);
  STALLOC_EXPECT_CALL(DeviceGetAttribute, cuDeviceGetAttribute);
  STALLOC_EXPECT_CALL(DeviceTotalMem, cuDeviceTotalMem);
  STALLOC_EXPECT_CALL(DeviceCanAccessPeer, cuDeviceCanAccessPeer);
  STALLOC_EXPECT_CALL(DevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain);
  STALLOC_EXPECT_CALL(DevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease);
  STALLOC_EXPECT_CALL(CtxGetCurrent, cuCtxGetCurrent);
  STALLOC_EXPECT_CALL(CtxPushCurrent, cuCtxPushCurrent);
  STALLOC_EXPECT_CALL(CtxPopCurrent, cuCtxPopCurrent);
  STALLOC_EXPECT_CALL(CtxGetDevice, cuCtxGetDevice);
  STALLOC_EXPECT_CALL(CtxSynchronize, cuCtxSynchronize);
  STALLOC_EXPECT_CALL(MemGetInfo, cuMemGetInfo);
  STALLOC_EXPECT_CALL(MemAddressReserve, cuMemAddressReserve);
  STALLOC_EXPECT_CALL(MemAddressFree, cuMemAddressFree);
  STALLOC_EXPECT_CALL(MemCreate, cuMemCreate);
  STALLOC_EXPECT_CALL(MemRelease, cuMemRelease);
  STALLOC_EXPECT_CALL(MemMap, cuMemMap);
  STALLOC_EXPECT_CALL(MemUnmap, cuMemUnmap);
  STALLOC_EXPECT_CALL(MemSetAccess, cuMemSetAccess);
  STALLOC_EXPECT_CALL(MemExportToShareableHandle, cuMemExportToShareableHandle);
  STALLOC_EXPECT_CALL(MemGetAllocationGranularity, cuMemGetAllocationGranularity);
  STALLOC_EXPECT_CALL(MemAllocAsync, cuMemAllocAsync);
  STALLOC_EXPECT_CALL(MemFreeAsync, cuMemFreeAsync);
  STALLOC_EXPECT_CALL(DeviceGetMemPool, cuDeviceGetMemPool);
  STALLOC_EXPECT_CALL(DeviceGetDefaultMemPool, cuDeviceGetDefaultMemPool);
  STALLOC_EXPECT_CALL(MemPoolGetAttribute, cuMemPoolGetAttribute);
  STALLOC_EXPECT_CALL(MemPoolSetAttribute, cuMemPoolSetAttribute);
  STALLOC_EXPECT_CALL(MemPoolTrimTo, cuMemPoolTrimTo);
  STALLOC_EXPECT_CALL(MemcpyHtoD, cuMemcpyHtoD);
  STALLOC_EXPECT_CALL(MemcpyDtoH, cuMemcpyDtoH);
  STALLOC_EXPECT_CALL(MemsetD8Async, cuMemsetD8Async);
  STALLOC_EXPECT_CALL(MemcpyDtoHAsync, cuMemcpyDtoHAsync);
  STALLOC_EXPECT_CALL(MemcpyHtoDAsync, cuMemcpyHtoDAsync);
  STALLOC_EXPECT_CALL(MemHostRegister, cuMemHostRegister);
  STALLOC_EXPECT_CALL(MemHostUnregister, cuMemHostUnregister);
  STALLOC_EXPECT_CALL(MemAlloc, cuMemAlloc);
  STALLOC_EXPECT_CALL(MemAllocHost, cuMemAllocHost);
  STALLOC_EXPECT_CALL(ModuleLoadData, cuModuleLoadData);
  STALLOC_EXPECT_CALL(ModuleGetFunction, cuModuleGetFunction);
  STALLOC_EXPECT_CALL(LaunchKernel, cuLaunchKernel);
  STALLOC_EXPECT_CALL(EventCreate, cuEventCreate);
  STALLOC_EXPECT_CALL(EventRecord, cuEventRecord);
  STALLOC_EXPECT_CALL(EventQuery, cuEventQuery);
  STALLOC_EXPECT_CALL(EventSynchronize, cuEventSynchronize);
  STALLOC_EXPECT_CALL(EventDestroy, cuEventDestroy);
  STALLOC_EXPECT_CALL(StreamCreate, cuStreamCreate);
  STALLOC_EXPECT_CALL(StreamDestroy, cuStreamDestroy);
  STALLOC_EXPECT_CALL(StreamSynchronize, cuStreamSynchronize);
  STALLOC_EXPECT_CALL(StreamWaitEvent, cuStreamWaitEvent);
  STALLOC_EXPECT_CALL(StreamIsCapturing, cuStreamIsCapturing);
  STALLOC_EXPECT_CALL(StreamBeginCapture, cuStreamBeginCapture);
  STALLOC_EXPECT_CALL(StreamEndCapture, cuStreamEndCapture);
  STALLOC_EXPECT_CALL(GraphDestroy, cuGraphDestroy);
  STALLOC_EXPECT_CALL(ThreadExchangeStreamCaptureMode, cuThreadExchangeStreamCaptureMode);
}

}  // namespace
}  // namespace stalloc::cuda
