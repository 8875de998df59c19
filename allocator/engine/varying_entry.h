// IsVaryingEntry: whether an entry of a script is one that iterations do not agree on. Pure.
#pragma once

#include "proto/model/plan.h"

namespace stalloc {

// Its size varies, or it is not always there.
[[nodiscard]] inline bool IsVaryingEntry(const Entry& entry) noexcept {
  return entry.entry_class == EntryClass::kDynamic || entry.entry_class == EntryClass::kOptional;
}

}  // namespace stalloc
