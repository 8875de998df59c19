#include "allocator/engine/miss_reason.h"

namespace stalloc {

const char* MissReasonName(MissReason reason) noexcept {
  switch (reason) {
    case MissReason::kNone:
      return "none";
    case MissReason::kUnplanned:
      return "unplanned";
    case MissReason::kUnknownSize:
      return "unknown_size";
    case MissReason::kUnmatched:
      return "unmatched";
    case MissReason::kOccupied:
      return "occupied";
    case MissReason::kStream:
      return "stream";
    case MissReason::kFenced:
      return "fenced";
    case MissReason::kCapturing:
      return "capturing";
    case MissReason::kParallel:
      return "parallel";
    case MissReason::kInactive:
      return "inactive";
    case MissReason::kUnbacked:
      return "unbacked";
    case MissReason::kCount:
      break;
  }
  return "?";
}

}  // namespace stalloc
