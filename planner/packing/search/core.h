// Core: the blocks that decide the height, as a smaller instance of their own.
//
// A block that is never alive while the load is near its peak, or that is tiny (left out where requested), nearly
// always finds space below the height that the others need. So searches evaluate orders of the core alone, many times
// faster, and an order that lowers the core is completed: the core first, the rest by size. First fit gives the core
// the same offsets in both.
#pragma once

#include <span>
#include <vector>

#include "planner/packing/problem/instance.h"
#include "planner/packing/problem/problem.h"
#include "planner/packing/search/stack_order.h"

namespace stalloc::planner {

class Core {
 public:
  // Blocks of at least `least_bytes` that are alive at a load of at least `share` of the bound. REQUIRES: `whole`
  // outlives the core.
  Core(const Instance& whole, double share, Bytes least_bytes = 0);

  [[nodiscard]] const Instance& instance() const { return instance_; }
  // The core's blocks as indices into the whole, ascending.
  [[nodiscard]] std::span<const BlockIndex> blocks() const { return kept_; }
  // An order of the core with the rest of the blocks after it.
  [[nodiscard]] StackOrder Completed(const StackOrder& core_order) const;
  // What an order of all blocks says about the core.
  [[nodiscard]] StackOrder Restricted(const StackOrder& order) const;

 private:
  const Instance& whole_;
  std::vector<BlockIndex> kept_;  // indices into whole_, ascending; position = index in the core
  Problem problem_;
  Instance instance_;
};

// The load below which a block is too small to matter: the bound divided by 32768 (1 MiB of 32 GiB).
[[nodiscard]] Bytes LightBytes(const Instance& instance);

}  // namespace stalloc::planner
