#include "allocator/torch/version/segment_format.h"

namespace stalloc::version {

SegmentFormat FormatOfSegments() noexcept { return static_cast<SegmentFormat>(STALLOC_TORCH_SEGMENT_FORMAT); }

}  // namespace stalloc::version
