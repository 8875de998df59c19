// FakeCuda: a table of CUDA driver functions that keep score, so that the CUDA side is tested where there is no GPU.
//
// Only what CudaDriver, CudaEvents and CudaCopies call is there; state is global, since the driver's functions carry
// none. Not for several tests at once.
#pragma once

#include <fcntl.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "allocator/driver/cuda_api.h"

namespace stalloc {

struct FakeCuda {
  // What the device can do and is asked to do.
  int devices = 1;
  std::vector<bool> active = {true, true, true};  // by device: it has a primary context
  cuda::Context context_of_streams = nullptr;     // what StreamGetCtx gives
  bool virtual_memory = true;
  bool posix_handles = true;
  bool rdma = true;
  cuda::Result refuse_exportable = cuda::kSuccess;  // what Create gives for exportable handles
  cuda::Result create_result = cuda::kSuccess;
  cuda::Result any_result = cuda::kSuccess;  // what every memory and event call gives
  bool peers = true;
  cuda::Stream captured_stream = nullptr;
  cuda::Stream captured_by_another = nullptr;  // becomes captured_stream at the next EventRecord

  // What happened.
  std::vector<cuda::Context> contexts;  // the thread's stack; back() is current
  int capture_mode = cuda::kCaptureModeGlobal;
  int retained = 0;
  int pushes = 0;
  int calls_in_wrong_context = 0;
  int calls_in_strict_mode = 0;  // memory or event calls that would break another thread's capture
  int events_created = 0;
  int events_destroyed = 0;
  cuda::Stream last_record_stream = nullptr;
  int context_events = 0;            // recorded behind all streams
  std::vector<std::uint64_t> waits;  // stream, event
  int context_waits = 0;             // of all streams
  int registered = 0;                // ranges of the host's memory
  int streams_created = 0;
  unsigned last_stream_flags = 0;
  std::vector<std::uint64_t> copies;   // of each: to, from, bytes
  std::vector<std::uint64_t> fills;    // of each: address, byte, bytes, stream
  std::vector<std::uint64_t> awaited;  // events, by the host
  std::vector<int> synchronized;       // devices, likewise
  int stream_waits = 0;                // of the host
  int handles = 0;
  cuda::AllocationHandle last_exported = 0;
  int last_exported_as = cuda::kHandleTypeNone;
  cuda::AllocationProperties last_properties;
  std::vector<cuda::AccessDescription> last_access;

  static FakeCuda& Instance() {
    static FakeCuda fake;
    return fake;
  }
  static cuda::Context PrimaryContext(int device = 0) {
    return reinterpret_cast<cuda::Context>(0x1000 + static_cast<std::uintptr_t>(device));
  }
  static int DeviceOf(cuda::Context context) {
    return static_cast<int>(reinterpret_cast<std::uintptr_t>(context) - 0x1000);
  }
  static cuda::Api Table();
};

namespace fake_cuda {

inline FakeCuda& F() { return FakeCuda::Instance(); }

// Every call that a capture would mind, or that needs the context, goes through here.
inline cuda::Result Checked() {
  const bool known = !F().contexts.empty() && FakeCuda::DeviceOf(F().contexts.back()) < F().devices;
  F().calls_in_wrong_context += known ? 0 : 1;
  F().calls_in_strict_mode += F().capture_mode != cuda::kCaptureModeRelaxed ? 1 : 0;
  return F().any_result;
}

inline cuda::Result Attribute(int* value, int attribute, cuda::Device) {
  *value = (attribute == cuda::kAttributeVirtualMemorySupported && F().virtual_memory) ||
           (attribute == cuda::kAttributePosixHandleSupported && F().posix_handles) ||
           (attribute == cuda::kAttributeRdmaWithVmmSupported && F().rdma);
  return cuda::kSuccess;
}

inline cuda::Result MemCreate(cuda::AllocationHandle* handle, std::size_t, const cuda::AllocationProperties* properties,
                              std::uint64_t) {
  if (const cuda::Result result = Checked(); result != cuda::kSuccess) return result;
  F().last_properties = *properties;
  if (properties->requested_handle_types != cuda::kHandleTypeNone && F().refuse_exportable != cuda::kSuccess) {
    return F().refuse_exportable;
  }
  if (F().create_result == cuda::kSuccess) {
    *handle = static_cast<cuda::AllocationHandle>(++F().handles);
  }
  return F().create_result;
}

inline cuda::Result Export(void* shareable, cuda::AllocationHandle handle, int handle_type, std::uint64_t) {
  if (const cuda::Result result = Checked(); result != cuda::kSuccess) return result;
  F().last_exported = handle;
  F().last_exported_as = handle_type;
  *static_cast<int*>(shareable) = open("/dev/null", O_RDONLY);
  return cuda::kSuccess;
}

inline cuda::Result ExchangeMode(int* mode) {
  std::swap(*mode, F().capture_mode);
  return cuda::kSuccess;
}

}  // namespace fake_cuda

inline cuda::Api FakeCuda::Table() {
  using fake_cuda::Checked;
  using fake_cuda::F;
  cuda::Api api;
  api.Init = [](unsigned) { return F().devices > 0 ? cuda::kSuccess : cuda::kErrorNoDevice; };
  api.DeviceGet = [](cuda::Device* device, int ordinal) {
    *device = ordinal;
    return ordinal >= 0 && ordinal < F().devices ? cuda::kSuccess : cuda::kErrorInvalidDevice;
  };
  api.DeviceGetAttribute = &fake_cuda::Attribute;
  api.DeviceCanAccessPeer = [](int* can, cuda::Device, cuda::Device) {
    *can = F().peers ? 1 : 0;
    return cuda::kSuccess;
  };
  api.DeviceGetCount = [](int* count) {
    *count = F().devices;
    return cuda::kSuccess;
  };
  api.DevicePrimaryCtxGetState = [](cuda::Device device, unsigned*, int* active) {
    *active = F().active[static_cast<std::size_t>(device)] ? 1 : 0;
    return cuda::kSuccess;
  };
  api.CtxGetDevice = [](cuda::Device* device) {
    *device = FakeCuda::DeviceOf(F().contexts.back());
    return cuda::kSuccess;
  };
  api.StreamGetCtx = [](cuda::Stream, cuda::Context* context) {
    *context = F().context_of_streams;
    return *context == nullptr ? cuda::kErrorInvalidHandle : cuda::kSuccess;
  };
  api.DevicePrimaryCtxRetain = [](cuda::Context* context, cuda::Device device) {
    *context = PrimaryContext(device);
    ++F().retained;
    return cuda::kSuccess;
  };
  api.DevicePrimaryCtxRelease = [](cuda::Device) {
    --F().retained;
    return cuda::kSuccess;
  };
  api.CtxGetCurrent = [](cuda::Context* context) {
    *context = F().contexts.empty() ? nullptr : F().contexts.back();
    return cuda::kSuccess;
  };
  api.CtxPushCurrent = [](cuda::Context context) {
    F().contexts.push_back(context);
    ++F().pushes;
    return cuda::kSuccess;
  };
  api.CtxPopCurrent = [](cuda::Context* context) {
    *context = F().contexts.back();
    F().contexts.pop_back();
    return cuda::kSuccess;
  };
  api.ThreadExchangeStreamCaptureMode = &fake_cuda::ExchangeMode;
  api.MemGetAllocationGranularity = [](std::size_t* bytes, const cuda::AllocationProperties*, int) {
    *bytes = std::size_t{2} << 20;
    return Checked();
  };
  api.MemCreate = &fake_cuda::MemCreate;
  api.MemRelease = [](cuda::AllocationHandle) {
    --F().handles;
    return Checked();
  };
  api.MemSetAccess = [](cuda::DevicePointer, std::size_t, const cuda::AccessDescription* access, std::size_t count) {
    F().last_access.assign(access, access + count);
    return Checked();
  };
  api.MemExportToShareableHandle = &fake_cuda::Export;
  api.MemUnmap = [](cuda::DevicePointer, std::size_t) { return Checked(); };
  api.CtxSynchronize = [] {
    F().synchronized.push_back(FakeCuda::DeviceOf(F().contexts.back()));
    return Checked();
  };
  api.CtxRecordEvent = [](cuda::Context, cuda::Event) {
    ++F().context_events;
    return Checked();
  };
  api.CtxWaitEvent = [](cuda::Context, cuda::Event) {
    ++F().context_waits;
    return Checked();
  };
  api.StreamCreate = [](cuda::Stream* stream, unsigned flags) {
    *stream = reinterpret_cast<cuda::Stream>(static_cast<std::uintptr_t>(0x500 + ++F().streams_created));
    F().last_stream_flags = flags;
    return Checked();
  };
  api.StreamSynchronize = [](cuda::Stream) {
    ++F().stream_waits;
    return Checked();
  };
  api.MemHostRegister = [](void*, std::size_t, unsigned) {
    const cuda::Result result = Checked();
    F().registered += result == cuda::kSuccess ? 1 : 0;
    return result;
  };
  api.MemHostUnregister = [](void*) {
    const cuda::Result result = Checked();
    F().registered -= result == cuda::kSuccess ? 1 : 0;
    return result;
  };
  api.MemcpyDtoHAsync = [](void* to, cuda::DevicePointer from, std::size_t bytes, cuda::Stream) {
    F().copies.insert(F().copies.end(), {reinterpret_cast<std::uint64_t>(to), from, bytes});
    return Checked();
  };
  api.MemcpyHtoDAsync = [](cuda::DevicePointer to, const void* from, std::size_t bytes, cuda::Stream) {
    F().copies.insert(F().copies.end(), {to, reinterpret_cast<std::uint64_t>(from), bytes});
    return Checked();
  };
  api.MemsetD8Async = [](cuda::DevicePointer to, unsigned char value, std::size_t bytes, cuda::Stream stream) {
    F().fills.insert(F().fills.end(), {to, value, bytes, reinterpret_cast<std::uint64_t>(stream)});
    return Checked();
  };
  api.EventCreate = [](cuda::Event* event, unsigned) {
    *event = reinterpret_cast<cuda::Event>(static_cast<std::uintptr_t>(0x100 + ++F().events_created));
    return Checked();
  };
  api.EventRecord = [](cuda::Event, cuda::Stream stream) {
    F().last_record_stream = stream;
    if (F().captured_by_another != nullptr) F().captured_stream = std::exchange(F().captured_by_another, nullptr);
    return Checked();
  };
  api.StreamWaitEvent = [](cuda::Stream stream, cuda::Event event, unsigned) {
    if (F().any_result == cuda::kSuccess) {
      F().waits = {reinterpret_cast<std::uint64_t>(stream), reinterpret_cast<std::uint64_t>(event)};
    }
    return Checked();
  };
  api.EventQuery = [](cuda::Event) {
    F().calls_in_strict_mode += F().capture_mode != cuda::kCaptureModeRelaxed ? 1 : 0;
    return F().any_result;
  };
  api.EventSynchronize = [](cuda::Event event) {
    F().calls_in_strict_mode += F().capture_mode != cuda::kCaptureModeRelaxed ? 1 : 0;
    F().awaited.push_back(reinterpret_cast<std::uint64_t>(event));
    return F().any_result;
  };
  api.EventDestroy = [](cuda::Event) {
    ++F().events_destroyed;
    return cuda::kSuccess;
  };
  api.StreamIsCapturing = [](cuda::Stream stream, int* status) {
    const bool captured = F().captured_stream != nullptr && stream == F().captured_stream;
    *status = captured ? cuda::kCaptureStatusActive : cuda::kCaptureStatusNone;
    // The legacy stream cannot be asked while another is captured.
    return F().captured_stream != nullptr && stream == nullptr ? cuda::kErrorStreamCaptureImplicit : cuda::kSuccess;
  };
  return api;
}

}  // namespace stalloc
