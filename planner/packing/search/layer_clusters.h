// Layer clusters: what one layer keeps for its backward pass is placed as one stack.
//
// First fit by size gives every size a band of its own, so what a layer frees at once lies scattered, and the holes at
// the peak of an interleaved pipeline are never adjacent. Here long blocks whose starts and whose ends nearly agree
// (single linkage, within a window of steps) are united, stacked, and first-fitted together:
//
//   +--------+
//    +------+|      members keep their own lifetimes; only the offsets inside the stack are fixed, so that a stack may
//   +---------+     interlock with another.
//    +-------+
//
// Members are at least `min_bytes`: layers differ in their small blocks, and stacks of equal height colour like
// intervals. Persistent blocks go below, stacks of at least `min_total` next, everything else by size. Neither a
// layer's length nor its sizes are known, so windows and thresholds are searched.
#pragma once

#include <cstdint>

#include "planner/packing/search/evaluator.h"
#include "planner/packing/search/stack_order.h"

namespace stalloc::planner {

struct LayerClusterOptions {
  std::uint32_t window = 12;      // steps within which starts, and ends, agree
  std::uint32_t min_length = 64;  // steps; shorter blocks follow by size
  Bytes min_bytes = 1;            // of a member
  Bytes min_total = 1;            // of a stack; smaller ones are dissolved
  bool ends_ascending = false;    // stacking order: by end instead of by size
  bool by_total = true;           // stacks by total size, then start; else by start alone
};

// Every block of the instance, clusters as stacks.
[[nodiscard]] StackOrder LayerClusterOrder(const Instance& instance, const LayerClusterOptions& options);

// One batch of guesses that suit the layers of common models.
void TryLayerClusters(Evaluator& evaluator);

// Tries `rounds` batches of random windows and thresholds, or stops when the state is done.
void SearchLayerClusters(Evaluator& evaluator, std::uint64_t seed, int rounds);

}  // namespace stalloc::planner
