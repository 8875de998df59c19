// The native allocator's settings (PYTORCH_CUDA_ALLOC_CONF and its kin), as text.
#pragma once

#include <c10/cuda/CUDACachingAllocator.h>

#include <string>

namespace stalloc::version {

// As last set, by the environment or by torch.cuda.memory._set_allocator_settings.
[[nodiscard]] std::string Settings(c10::cuda::CUDACachingAllocator::CUDAAllocator& native);

// As torch.cuda.memory._set_allocator_settings. Throws c10::Error on what torch does not know.
void Apply(const std::string& settings);

}  // namespace stalloc::version
