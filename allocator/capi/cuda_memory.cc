// The part of stalloc.h over CUDA memory, in libstalloc.so alone.
#include <exception>
#include <string>

#include "allocator/base/log.h"
#include "allocator/capi/allocation_failure.h"
#include "allocator/capi/cuda_devices.h"
#include "allocator/capi/last_error.h"
#include "allocator/capi/stalloc.h"

namespace {

// Programs that look for their largest batch run out of memory again and again.
stalloc::LogThrottle g_failures(3);

stalloc::StreamHandle HandleOf(void* stream) { return reinterpret_cast<stalloc::StreamHandle>(stream); }

void* Allocate(ssize_t bytes, int device, void* stream) {
  if (bytes < 0) throw stalloc::AllocationFailure("negative size: " + std::to_string(bytes));
  if (bytes == 0) return nullptr;
  return stalloc::CudaDevices::Instance().Allocate(static_cast<stalloc::Bytes>(bytes), device, HandleOf(stream));
}

// Also into the log: not every caller shows what it catches.
void Report(const char* what) noexcept {
  stalloc::SetLastError(what);
  if (g_failures.Pass()) stalloc::Log(stalloc::LogSeverity::kError, "%s", what);
}

}  // namespace

extern "C" {

void* stalloc_malloc(ssize_t bytes, int device, void* stream) {
  try {
    return Allocate(bytes, device, stream);
  } catch (const std::exception& error) {
    Report(error.what());
    throw;
  }
}

void* stalloc_try_malloc(ssize_t bytes, int device, void* stream) {
  try {
    return Allocate(bytes, device, stream);
  } catch (const std::exception& error) {
    Report(error.what());
  } catch (...) {
    Report("stalloc: unknown exception");
  }
  return nullptr;
}

void stalloc_free(void* pointer, ssize_t /*bytes*/, int device, void* /*stream*/) {
  stalloc::CudaDevices::Instance().Free(pointer, device);
}

void stalloc_record_stream(void* pointer, void* stream) {
  stalloc::CudaDevices::Instance().RecordStream(pointer, HandleOf(stream));
}

}  // extern "C"
