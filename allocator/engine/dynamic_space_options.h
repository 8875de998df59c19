// What the room beside the slots may be. Sizes in bytes, multiples of kBlockAlignment.
#pragma once

#include "allocator/engine/rules.h"
#include "proto/model/units.h"

namespace stalloc {

struct DynamicSpaceOptions {
  Bytes limit_bytes = 0;   // where the arena's addresses end; 0: nothing but slots is served
  Bytes mapped_bytes = 0;  // of them, mapped at first: the plan's height or more
  Bytes least_bytes = 0;   // smaller requests are left to upstream, whose pool for small blocks takes a few MiB
  Rules rules = {};
};

}  // namespace stalloc
