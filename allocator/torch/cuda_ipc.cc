#include "allocator/torch/cuda_ipc.h"

#include <c10/util/Exception.h>

namespace stalloc {

void CheckShareable(const DeviceRuntime& runtime, c10::DeviceIndex device, const void* pointer) {
  if (!runtime.Owns(pointer)) return;
  const bool planned = runtime.arena() != nullptr;
  TORCH_CHECK(false, "stalloc: a tensor in ", planned ? "the planned arena" : "the heap of an exact trace",
              " of cuda:", static_cast<int>(device),
              " cannot be shared with another process (CUDA IPC). Allocate what is to be shared inside "
              "`with torch.cuda.use_mem_pool(torch.cuda.MemPool()):`, which PyTorch's own allocator serves, or ",
              planned ? "run with STALLOC_MODE=Torch." : "trace with STALLOC_TRACE_FAST_MODE=1.");
}

}  // namespace stalloc
