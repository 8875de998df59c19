// The longest common subsequence of two sequences, for small differences.
//
// E. W. Myers, "An O(ND) Difference Algorithm and Its Variations", Algorithmica 1 (1986): greedy search by number of
// edits D. O((N + M) D) time, O(D^2) memory. Deterministic; pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"

namespace stalloc::planner {

// What a request looks like to the alignment: rounded size and stream.
using RequestKey = std::uint64_t;

// Positions that match, ascending in both.
using Matches = std::vector<std::pair<std::uint32_t, std::uint32_t>>;

// Nullopt if the sequences differ by more than `max_edits` insertions and deletions.
[[nodiscard]] std::optional<Matches> LongestCommonSubsequence(std::span<const RequestKey> left,
                                                              std::span<const RequestKey> right,
                                                              std::uint32_t max_edits);

// The same for sequences of `left` and `right` elements that are compared by `equal` (positions in each), which need
// not be transitive.
[[nodiscard]] std::optional<Matches> LongestCommonSubsequence(
    std::uint32_t left, std::uint32_t right, absl::FunctionRef<bool(std::uint32_t, std::uint32_t)> equal,
    std::uint32_t max_edits);

}  // namespace stalloc::planner
