// What the room beside the slots may be. Sizes in bytes, multiples of kBlockAlignment.
#pragma once

#include <algorithm>

#include "proto/model/units.h"

namespace stalloc {

struct DynamicSpaceOptions {
  Bytes limit_bytes = 0;   // where the arena's addresses end; 0: nothing but slots is served
  Bytes mapped_bytes = 0;  // of them, mapped at first: the plan's height or more
  Bytes least_bytes = 0;   // smaller requests are left to upstream, whose pool for small blocks costs next to nothing
};

// Small requests that vary are many, and weigh next to nothing: upstream's pool for them takes a few MiB, and a search
// for each would be time for nothing. Of an arena of 4 GiB and more these are the requests that PyTorch calls small.
[[nodiscard]] constexpr Bytes LeastDynamicBytes(Bytes mapped_bytes) {
  constexpr Bytes kMost = Bytes{1} << 20;
  constexpr Bytes kParts = 4096;
  return RoundUp(std::clamp<Bytes>(mapped_bytes / kParts, 1, kMost), kBlockAlignment);
}

}  // namespace stalloc
