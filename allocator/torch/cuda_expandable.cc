#include "allocator/torch/cuda_expandable.h"

#include <string>

#include "allocator/torch/version/settings.h"

namespace stalloc {

void SwitchExpandableSegmentsOn(c10::cuda::CUDACachingAllocator::CUDAAllocator& native) {
  if (native.name() != "native") return;
  const std::string settings = version::Settings(native);
  if (settings.find("expandable_segments") != std::string::npos) return;
  version::Apply(settings.empty() ? "expandable_segments:True" : settings + ",expandable_segments:True");
}

}  // namespace stalloc
