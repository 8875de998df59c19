// What one iteration came to. Bytes.
#pragma once

#include "proto/model/units.h"

namespace stalloc {

struct IterationPeaks {
  Bytes live = 0;
  Bytes held = 0;
};

}  // namespace stalloc
