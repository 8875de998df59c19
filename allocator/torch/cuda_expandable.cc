#include "allocator/torch/cuda_expandable.h"

#include <c10/core/AllocatorConfig.h>

#include <string>

namespace stalloc {

// Goes through the two functions that libc10 exports: the inline ones around them keep static variables that this
// library, which exports nothing, would have copies of.
void SwitchExpandableSegmentsOn(c10::cuda::CUDACachingAllocator::CUDAAllocator& native) {
  if (native.name() != "native") return;
  auto& config = c10::CachingAllocator::AcceleratorAllocatorConfig::instance();
  const std::string settings = c10::CachingAllocator::AcceleratorAllocatorConfig::last_allocator_settings();
  if (settings.find("expandable_segments") != std::string::npos) return;
  config.parseArgs(settings.empty() ? "expandable_segments:True" : settings + ",expandable_segments:True");
}

}  // namespace stalloc
