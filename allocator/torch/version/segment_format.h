// Which text torch has for expandable segments that another process shall map (cuda_ipc.h). No header shows it: the
// build queries torch's library (find_torch.py) and hands the answer to this layer.
#pragma once

namespace stalloc::version {

// The number is the text's first byte.
enum class SegmentFormat : char {
  kUnknown = 0,  // a torch that is newer than those that were looked at
  kUntyped = 2,  // up to 2.12: the reader takes descriptors for whatever its own segments have
  kTyped = 3,    // from 2.13 on: the text says what its handles are
};

// For the torch that this library is built for.
[[nodiscard]] SegmentFormat FormatOfSegments() noexcept;

}  // namespace stalloc::version
