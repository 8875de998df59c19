// What iterations leave behind: blocks that outlive the iteration after their own. A loop that leaks leaves the same
// blocks in every iteration; caches and lazy state leave them in the first ones. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "planner/report/block_facts.h"

namespace stalloc::planner {

// Alike in size, class, role (phase without its iteration) and layer.
struct GrowthGroup {
  Bytes bytes = 0;
  MemoryClass memory_class = MemoryClass::kOther;
  std::uint32_t role = 0;
  std::uint32_t layer = 0;
  std::vector<std::uint64_t> left;  // blocks by segment; the last two segments cannot be judged and have none
};

struct Growth {
  std::vector<Bytes> begin_live;    // by segment, at its begin
  std::vector<GrowthGroup> groups;  // by bytes left in all iterations, falling
};

[[nodiscard]] Growth FindGrowth(const DeviceFacts& facts, const Segmentation& segmentation, std::size_t most_groups);

}  // namespace stalloc::planner
