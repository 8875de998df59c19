#include "allocator/torch/cpu_allocator.h"

#include <c10/core/CPUAllocator.h>

namespace stalloc {
namespace {

// A deleter has no closure, so the runtime is global. Set once, before the first block.
DeviceRuntime* g_runtime = nullptr;

// What every DataPtr of ours carries.
void DeleteCpuBlock(void* pointer) {
  if (pointer == nullptr) return;
  if (g_runtime->Owns(pointer)) c10::profiledCPUMemoryReporter().Delete(pointer);
  g_runtime->Free(pointer);
}

}  // namespace

StallocCpuAllocator::StallocCpuAllocator(DeviceRuntime* runtime) { g_runtime = runtime; }

c10::DataPtr StallocCpuAllocator::allocate(std::size_t bytes) {
  void* pointer = nullptr;
  if (bytes != 0) {
    pointer = g_runtime->Allocate(bytes, 0, false);
    // Upstream reports its own blocks.
    if (g_runtime->Owns(pointer)) c10::profiledCPUMemoryReporter().New(pointer, bytes);
  }
  return {pointer, pointer, &DeleteCpuBlock, c10::Device(c10::DeviceType::CPU)};
}

c10::DeleterFnPtr StallocCpuAllocator::raw_deleter() const { return &DeleteCpuBlock; }

void StallocCpuAllocator::copy_data(void* dest, const void* src, std::size_t count) const {
  default_copy_data(dest, src, count);
}

}  // namespace stalloc
