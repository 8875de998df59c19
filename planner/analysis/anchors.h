// Anchors: requests that two iterations have in the same order, whatever varies between them.
//
// A set of keys (size and stream) such that both sequences, restricted to these keys, are identical. Found in one pass:
// keys that occur a different number of times go first; then both sequences are walked in step, and at each
// disagreement the key that occurs less often (of equals, the smaller) is dropped. What matched before stays matched,
// since a dropped key left both sides alike. Keys under kAnchorBytes are too common to hold anything in place.
#pragma once

#include <span>

#include "planner/analysis/edit_script.h"
#include "proto/model/units.h"

namespace stalloc::planner {

inline constexpr Bytes kAnchorBytes = 1024;

// O(n) hash operations.
[[nodiscard]] Matches FindAnchors(std::span<const RequestKey> left, std::span<const RequestKey> right);

}  // namespace stalloc::planner
