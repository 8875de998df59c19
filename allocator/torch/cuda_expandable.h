// The native allocator's expandable segments, for what a plan does not serve.
#pragma once

#include <c10/cuda/CUDACachingAllocator.h>

namespace stalloc {

// Switches expandable segments on, as torch.cuda.memory._set_allocator_settings does, unless the user's settings name
// them, either way. Called when an arena is served: a run without one keeps the native allocator as the user set it.
void SwitchExpandableSegmentsOn(c10::cuda::CUDACachingAllocator::CUDAAllocator& native);

}  // namespace stalloc
