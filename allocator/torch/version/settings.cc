#include "allocator/torch/version/settings.h"

#include <c10/core/AllocatorConfig.h>
#include <c10/cuda/CUDAAllocatorConfig.h>

#include <optional>

namespace stalloc::version {
namespace {

using c10::CachingAllocator::AcceleratorAllocatorConfig;
using c10::cuda::CUDACachingAllocator::CUDAAllocatorConfig;

// Up to 2.9 CUDA's settings are a class of their own; from then on all accelerators share one.
template <typename Config>
concept OfCudaAlone = requires(Config& config, const std::optional<std::string>& text) {
  config.parseArgs(text);
};

// Both ways go through functions that libc10 and libc10_cuda export: the inline ones around them keep static variables
// that this library, which exports nothing, would have copies of.
template <typename Config>
std::string SettingsOf(c10::cuda::CUDACachingAllocator::CUDAAllocator& native) {
  if constexpr (OfCudaAlone<Config>) {
    return native.snapshot().config_metadata.last_allocator_settings;
  } else {
    return AcceleratorAllocatorConfig::last_allocator_settings();
  }
}

template <typename Config>
void ApplyTo(const std::string& settings) {
  if constexpr (OfCudaAlone<Config>) {
    c10::cuda::CUDACachingAllocator::setAllocatorSettings(settings);
  } else {
    AcceleratorAllocatorConfig::instance().parseArgs(settings);
  }
}

}  // namespace

std::string Settings(c10::cuda::CUDACachingAllocator::CUDAAllocator& native) {
  return SettingsOf<CUDAAllocatorConfig>(native);
}

void Apply(const std::string& settings) { ApplyTo<CUDAAllocatorConfig>(settings); }

}  // namespace stalloc::version
