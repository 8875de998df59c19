// Installing the CUDA adapter. Free of c10's CUDA headers, so that builds without CUDA have it too (stubs_no_cuda.cc).
#pragma once

#include <string>

#include "proto/model/result.h"

namespace stalloc {

[[nodiscard]] bool HasCudaAdapter() noexcept;

// Opens the session and puts a StallocCudaAllocator over the CUDA allocator that is installed now, in both of torch's
// registries. In STALLOC_MODE=Torch nothing is put in place. Errors: CUDA is initialised already, installed already.
// `running_torch`: torch.__version__.
[[nodiscard]] Status InstallCuda(const char* running_torch);

// graph_figures.h; "{}" where nothing is installed.
[[nodiscard]] std::string CudaGraphFigures();
// Device memory that no allocator counts (StallocCudaAllocator::UncountedFigures); likewise.
[[nodiscard]] std::string CudaUncountedFigures();

}  // namespace stalloc
