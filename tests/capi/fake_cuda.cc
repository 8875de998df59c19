#include "tests/capi/fake_cuda.h"

#include <algorithm>

namespace stalloc {

FakeCuda* FakeCuda::g_fake = nullptr;

FakeCuda::FakeCuda() {
  g_fake = this;
  SetFunctions();
}

cuda::Result FakeCuda::Allocate(cuda::DevicePointer* pointer, std::size_t bytes, cuda::Stream stream) {
  FakeCuda& fake = *g_fake;
  std::size_t used = fake.waiting;
  for (const auto& [address, size] : fake.live) used += size;
  if (used + bytes > fake.capacity) return cuda::kErrorOutOfMemory;
  *pointer = fake.next_;
  fake.next_ += 0x1000;
  fake.live[*pointer] = bytes;
  fake.held = std::max(fake.held, used + bytes);
  fake.peak = std::max(fake.peak, fake.held);
  fake.log.push_back("alloc " + std::to_string(Id(stream)) + " " + std::to_string(bytes));
  return cuda::kSuccess;
}

cuda::Result FakeCuda::Free(cuda::DevicePointer pointer, cuda::Stream stream) {
  FakeCuda& fake = *g_fake;
  const auto found = fake.live.find(pointer);
  if (found == fake.live.end()) return cuda::kErrorInvalidValue;
  if (fake.in_use_until_sync) fake.waiting += found->second;
  fake.live.erase(found);
  fake.log.push_back("free " + std::to_string(Id(stream)));
  return cuda::kSuccess;
}

cuda::Result FakeCuda::Attribute(cuda::MemoryPool /*pool*/, int attribute, void* value) {
  auto* const number = static_cast<std::uint64_t*>(value);
  if (attribute == cuda::kPoolReservedCurrent) *number = g_fake->held;
  if (attribute == cuda::kPoolReservedHigh) *number = g_fake->peak;
  return cuda::kSuccess;
}

void FakeCuda::SetFunctions() {
  api_.DeviceGet = [](cuda::Device* device, int ordinal) { return *device = ordinal, cuda::kSuccess; };
  api_.DeviceGetDefaultMemPool = [](cuda::MemoryPool* pool, cuda::Device) {
    return *pool = reinterpret_cast<cuda::MemoryPool>(0x55), cuda::kSuccess;
  };
  api_.MemPoolSetAttribute = [](cuda::MemoryPool, int, void*) { return cuda::kSuccess; };
  api_.MemPoolGetAttribute = &FakeCuda::Attribute;
  api_.MemPoolTrimTo = [](cuda::MemoryPool, std::size_t) { return g_fake->log.push_back("trim"), cuda::kSuccess; };
  api_.MemAllocAsync = &FakeCuda::Allocate;
  api_.MemFreeAsync = &FakeCuda::Free;
  api_.CtxGetCurrent = [](cuda::Context* current) { return *current = g_fake->thread_context, cuda::kSuccess; };
  api_.CtxPushCurrent = [](cuda::Context pushed) { return g_fake->thread_context = pushed, cuda::kSuccess; };
  api_.CtxPopCurrent = [](cuda::Context*) { return g_fake->thread_context = nullptr, cuda::kSuccess; };
  api_.CtxSynchronize = [] {
    g_fake->log.push_back("synchronize");
    g_fake->waiting = 0;
    return cuda::kSuccess;
  };
  api_.MemGetInfo = [](std::size_t* free, std::size_t* total) {
    *free = 0;
    *total = g_fake->capacity;
    return cuda::kSuccess;
  };
  api_.GetErrorName = [](cuda::Result, const char** name) { return *name = "CUDA_ERROR_FAKE", cuda::kSuccess; };
  api_.StreamIsCapturing = [](cuda::Stream stream, int* status) {
    if (g_fake->thread_context == nullptr) return cuda::kErrorInvalidValue;
    *status = g_fake->capturing.count(Id(stream)) != 0 ? cuda::kCaptureStatusActive : cuda::kCaptureStatusNone;
    return cuda::kSuccess;
  };
  api_.ThreadExchangeStreamCaptureMode = [](int*) { return cuda::kSuccess; };
  api_.EventCreate = [](cuda::Event* event, unsigned) {
    *event = reinterpret_cast<cuda::Event>(g_fake->next_event_++);
    return cuda::kSuccess;
  };
  api_.EventRecord = [](cuda::Event event, cuda::Stream stream) {
    g_fake->recorded_on_[reinterpret_cast<std::uint64_t>(event)] = Id(stream);
    g_fake->log.push_back("record " + std::to_string(Id(stream)));
    return cuda::kSuccess;
  };
  api_.EventQuery = [](cuda::Event) { return cuda::kSuccess; };
  api_.EventSynchronize = [](cuda::Event) { return cuda::kSuccess; };
  api_.EventDestroy = [](cuda::Event) { return cuda::kSuccess; };
  api_.StreamWaitEvent = [](cuda::Stream stream, cuda::Event event, unsigned) {
    const std::uint64_t behind = g_fake->recorded_on_.at(reinterpret_cast<std::uint64_t>(event));
    g_fake->log.push_back("wait " + std::to_string(Id(stream)) + " " + std::to_string(behind));
    return cuda::kSuccess;
  };
}

}  // namespace stalloc
