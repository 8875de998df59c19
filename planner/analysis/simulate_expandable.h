// The same with expandable_segments: each pool has one range of addresses, mapped page by page from below as it grows.
// Any rest of a block is cut off. The free block at the end of the range counts as large as the range may become, so it
// is taken last.
#pragma once

#include <map>

#include "planner/analysis/block_list.h"
#include "planner/analysis/simulated_allocator.h"

namespace stalloc::planner {

class ExpandableSimulation final : public SimulatedAllocator {
 public:
  [[nodiscard]] BlockId Allocate(Bytes bytes, const SimulatedPool& pool) override;
  void Free(BlockId block) override;
  [[nodiscard]] Bytes held_bytes() const override { return held_; }

  // Where a live block lies: `address` counts from the beginning of its pool's range.
  struct Place {
    std::uint32_t pool = 0;
    Offset address = 0;
  };
  [[nodiscard]] Place PlaceOf(BlockId block) const { return {blocks_[block].pool, blocks_[block].address}; }

 private:
  struct Pool {
    FreeBlocks free;
    std::uint32_t ordinal = 0;
    Bytes page = 0;
    Bytes mapped = 0;                    // from the beginning of the range
    BlockId last = BlockList::kNoBlock;  // the block that ends at `mapped`
  };
  Pool& Find(const SimulatedPool& pool);
  FreeBlocks::iterator FindFit(Bytes bytes, Pool& pool);
  BlockId Grow(Bytes bytes, Pool* pool);
  void CutRest(BlockId id, Bytes bytes, Pool* pool);

  BlockList blocks_;
  std::map<SimulatedPool, std::uint32_t> ordinals_;
  std::vector<Pool> pools_;
  Bytes held_ = 0;
};

}  // namespace stalloc::planner
