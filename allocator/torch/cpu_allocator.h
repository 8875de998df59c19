// StallocCpuAllocator: c10's CPU allocator over a DeviceRuntime, so that real PyTorch programs run through Trace, plan
// and Alloc on a machine without a GPU.
//
// One deleter for every block; blocks from before the install keep theirs. Requests of zero bytes are null pointers,
// and live blocks are reported to torch.profiler, as the default allocator does. Thread-safe. Throws what the default
// allocator throws when there is no memory. Never destroyed: frees arrive until the process is gone.
#pragma once

#include <c10/core/Allocator.h>

#include "allocator/runtime/device_runtime.h"
#include "proto/model/result.h"

namespace stalloc {

class StallocCpuAllocator final : public c10::Allocator {
 public:
  explicit StallocCpuAllocator(DeviceRuntime* runtime);

  c10::DataPtr allocate(std::size_t bytes) override;
  [[nodiscard]] c10::DeleterFnPtr raw_deleter() const override;
  void copy_data(void* dest, const void* src, std::size_t count) const override;
};

// Opens the session and puts a StallocCpuAllocator in the place of the CPU allocator that is installed now. In
// STALLOC_MODE=Torch nothing is put in place. Call once, from the thread that imports torch. `running_torch`:
// torch.__version__.
[[nodiscard]] Status InstallCpu(const char* running_torch);

}  // namespace stalloc
