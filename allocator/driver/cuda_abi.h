// The part of the CUDA driver's binary interface that stalloc calls, declared by itself.
//
// So the library builds where no CUDA toolkit is installed, one source serves every toolkit version, and a translation
// unit may include NVIDIA's cuda.h next to it: everything lives in stalloc::cuda. tests/driver/cuda_abi_test.cc
// compares each size, offset and number below with the real cuda.h wherever one is found.
#pragma once

#include <cstddef>
#include <cstdint>

namespace stalloc::cuda {

using Result = int;                      // CUresult
using Device = int;                      // CUdevice
using DevicePointer = std::uint64_t;     // CUdeviceptr
using AllocationHandle = std::uint64_t;  // CUmemGenericAllocationHandle
using Context = void*;                   // CUcontext
using Stream = void*;                    // CUstream; null is the legacy default stream
using Event = void*;                     // CUevent
using MemoryPool = void*;                // CUmemoryPool
using Graph = void*;                     // CUgraph
using GraphNode = void*;                 // CUgraphNode
using Module = void*;                    // CUmodule
using Function = void*;                  // CUfunction

// CUresult
inline constexpr Result kSuccess = 0;
inline constexpr Result kErrorInvalidValue = 1;
inline constexpr Result kErrorOutOfMemory = 2;
inline constexpr Result kErrorNotInitialized = 3;
inline constexpr Result kErrorDeinitialized = 4;
inline constexpr Result kErrorStubLibrary = 34;
inline constexpr Result kErrorNoDevice = 100;
inline constexpr Result kErrorInvalidDevice = 101;
inline constexpr Result kErrorInvalidContext = 201;
inline constexpr Result kErrorAlreadyMapped = 208;
inline constexpr Result kErrorInvalidHandle = 400;
inline constexpr Result kErrorNotReady = 600;
inline constexpr Result kErrorContextIsDestroyed = 709;
inline constexpr Result kErrorNotPermitted = 800;
inline constexpr Result kErrorNotSupported = 801;
inline constexpr Result kErrorStreamCaptureUnsupported = 900;
inline constexpr Result kErrorStreamCaptureImplicit = 906;

// CUdevice_attribute
inline constexpr int kAttributeComputeCapabilityMajor = 75;
inline constexpr int kAttributeComputeCapabilityMinor = 76;
inline constexpr int kAttributeVirtualMemorySupported = 102;
inline constexpr int kAttributePosixHandleSupported = 103;
inline constexpr int kAttributeRdmaWithVmmSupported = 110;
inline constexpr int kAttributeMemoryPoolsSupported = 115;

// CUmemAllocationType, CUmemLocationType, CUmemAllocationHandleType, CUmemAccess_flags,
// CUmemAllocationGranularity_flags
inline constexpr int kAllocationTypePinned = 1;
inline constexpr int kLocationTypeDevice = 1;
inline constexpr int kHandleTypeNone = 0;
inline constexpr int kHandleTypePosixFileDescriptor = 1;
inline constexpr int kAccessReadWrite = 3;
inline constexpr int kGranularityMinimum = 0;
inline constexpr int kGranularityRecommended = 1;

// CUmemPool_attribute; the values are cuuint64_t
inline constexpr int kPoolReleaseThreshold = 4;
inline constexpr int kPoolReservedCurrent = 5;
inline constexpr int kPoolReservedHigh = 6;
inline constexpr int kPoolUsedCurrent = 7;
inline constexpr int kPoolUsedHigh = 8;

// CUevent_flags, CUstreamCaptureStatus, CUstreamCaptureMode
inline constexpr unsigned kEventDisableTiming = 2;
inline constexpr unsigned kStreamNonBlocking = 1;
inline constexpr unsigned kHostRegisterPortable = 1;
inline constexpr int kCaptureStatusNone = 0;
inline constexpr int kCaptureStatusActive = 1;
inline constexpr int kCaptureModeGlobal = 0;
inline constexpr int kCaptureModeThreadLocal = 1;
inline constexpr int kCaptureModeRelaxed = 2;

struct Location {  // CUmemLocation
  int type = kLocationTypeDevice;
  int id = 0;
};

struct AllocationProperties {  // CUmemAllocationProp
  int type = kAllocationTypePinned;
  int requested_handle_types = kHandleTypeNone;
  Location location;
  void* win32_handle_metadata = nullptr;
  struct Flags {
    std::uint8_t compression_type = 0;
    std::uint8_t gpu_direct_rdma_capable = 0;
    std::uint16_t usage = 0;
    std::uint8_t reserved[4] = {};
  } flags;
};

struct AccessDescription {  // CUmemAccessDesc
  Location location;
  int flags = kAccessReadWrite;
};

static_assert(sizeof(Location) == 8 && sizeof(AllocationProperties) == 32 && sizeof(AccessDescription) == 12);

}  // namespace stalloc::cuda
