// What people read for a pass of a micro-batch.
#pragma once

#include "proto/model/trace.h"

namespace stalloc {

inline const char* PassName(Pass pass) noexcept {
  switch (pass) {
    case Pass::kForward:
      return "F";
    case Pass::kBackward:
      return "B";
    case Pass::kWeight:
      return "W";
    case Pass::kForwardBackward:
      return "FB";
    case Pass::kNone:
    case Pass::kOther:
      break;
  }
  return "other";
}

}  // namespace stalloc
