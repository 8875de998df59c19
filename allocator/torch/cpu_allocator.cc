#include "allocator/torch/cpu_allocator.h"

#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>
#include <dlfcn.h>

#include <string>
#include <utility>

namespace stalloc {
namespace {

// A deleter has no closure, so the runtime is global. Set once, before the first block.
DeviceRuntime* g_runtime = nullptr;

// at::in_parallel_region of the torch in this process. Looked up, since tests link this code without libtorch_cpu; a
// torch without it has no parallel regions that can be recognized.
using InParallelRegion = bool (*)();

InParallelRegion FindInParallelRegion() {
  void* const torch = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
  void* const found = torch != nullptr ? dlsym(torch, "_ZN2at18in_parallel_regionEv") : nullptr;
  const InParallelRegion never = [] { return false; };
  return found != nullptr ? reinterpret_cast<InParallelRegion>(found) : never;
}

InParallelRegion g_in_parallel_region = nullptr;

// Kernels take scratch inside their parallel regions (bfloat16 attention does): from any thread, in any order.
Origin OriginHere() { return g_in_parallel_region() ? Origin::kParallel : Origin::kProgram; }

// torch's CPU allocators throw for lack of memory alone.
void* AllocateOrExplain(std::size_t bytes) {
  try {
    return g_runtime->Allocate(bytes, 0, OriginHere());
  } catch (c10::Error& error) {
    for (std::string& line : g_runtime->ExplainOutOfMemory(bytes, 0)) error.add_context(std::move(line));
    throw;
  }
}

// What every DataPtr of ours carries.
void DeleteCpuBlock(void* pointer) {
  if (pointer == nullptr) return;
  if (g_runtime->Owns(pointer)) c10::profiledCPUMemoryReporter().Delete(pointer);
  g_runtime->Free(pointer);
}

}  // namespace

StallocCpuAllocator::StallocCpuAllocator(DeviceRuntime* runtime) {
  g_in_parallel_region = FindInParallelRegion();
  g_runtime = runtime;
}

c10::DataPtr StallocCpuAllocator::allocate(std::size_t bytes) {
  void* pointer = nullptr;
  if (bytes != 0) {
    pointer = AllocateOrExplain(bytes);
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
