// Alignment of two short runs of requests by how alike they are, where neither equal sizes nor anchors help.
//
// Global alignment with affine gaps: O. Gotoh, "An improved algorithm for matching biological sequences", J. Mol. Biol.
// 162 (1982). Equal requests of a size that means something count most, the more the rarer the size is, if it keeps
// step on both sides; sizes of one magnitude count a little (the tokens of an expert vary by a factor of three or so),
// and a run that one side lacks as a whole costs little more than one request (an expert without tokens, a branch not
// taken). Requests of two streams are never paired. Only positions near the diagonal are paired: O(left x SimilarReach)
// time, one byte for each pair of positions.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include "planner/analysis/edit_script.h"

namespace stalloc::planner {

// How far from the diagonal a position may be that counts.
[[nodiscard]] constexpr std::size_t SimilarReach(std::size_t left, std::size_t right) {
  return 512 + (left > right ? left - right : right - left);
}

// Whether runs of so many requests have few enough pairs of positions that count.
[[nodiscard]] constexpr bool IsShortEnough(std::size_t left, std::size_t right) {
  constexpr std::size_t kMostPairs = std::size_t{1} << 24;
  return left <= kMostPairs / std::max(std::size_t{1}, std::min(right, 2 * SimilarReach(left, right)));
}

// REQUIRES: IsShortEnough(left.size(), right.size()). Deterministic; pure.
[[nodiscard]] Matches AlignSimilar(std::span<const RequestKey> left, std::span<const RequestKey> right);

}  // namespace stalloc::planner
