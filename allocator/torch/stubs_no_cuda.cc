// Takes the place of the CUDA adapter where torch, or the build machine, has no CUDA.
#include "allocator/torch/cuda_install.h"
#include "allocator/torch/torch_version.h"

namespace stalloc {

bool HasCudaAdapter() noexcept { return false; }

Status InstallCuda(const char*) {
  return Error{
      std::string(
          "this build of stalloc has no CUDA adapter; reinstall it where a CUDA build of torch is; built for ") +
      BuiltForTorch()};
}

std::string CudaGraphFigures() { return "{}"; }
std::string CudaUncountedFigures() { return "{}"; }

}  // namespace stalloc
