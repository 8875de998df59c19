// The same with expandable_segments: each pool has one range of addresses, of which pages are mapped as it grows, and
// unmapped again where caches are emptied. Any rest of a block is cut off. A free block with unmapped addresses after
// it counts as large as it may become, so it is taken last.
#pragma once

#include <map>

#include "planner/analysis/simulated_allocator.h"

namespace stalloc::planner {

class ExpandableSimulation final : public SimulatedAllocator {
 public:
  static constexpr Bytes kRangeBytes = Bytes{1} << 42;  // of a pool; far more than a device has

  [[nodiscard]] BlockId Allocate(Bytes bytes, const SimulatedPool& pool) override;
  void Free(BlockId block) override;
  [[nodiscard]] Bytes held_bytes() const override { return held_; }
  // Pages without a live block go back to the device.
  void EmptyCaches() override;

  // Where a live block lies: `address` counts from the beginning of its pool's range.
  struct Place {
    std::uint32_t pool = 0;
    Offset address = 0;
  };
  [[nodiscard]] Place PlaceOf(BlockId block) const { return {blocks_[block].pool, blocks_[block].address}; }

 private:
  struct Pool {
    FreeBlocks free;
    std::map<Offset, BlockId> unmapped;  // by address; in the list of blocks they are in use
    std::uint32_t ordinal = 0;
    Bytes page = 0;
    bool captured = false;
  };
  Pool& Find(const SimulatedPool& pool);
  [[nodiscard]] bool IsUnmapped(BlockId id, const Pool& pool) const;
  [[nodiscard]] Bytes MostBytes(const FreeBlock& block, const Pool& pool) const;
  FreeBlocks::iterator FindFit(Bytes bytes, Pool& pool);
  BlockId Grow(Bytes bytes, Pool* pool);
  [[nodiscard]] BlockId FindRange(Bytes bytes, const Pool& pool) const;
  void MapFirst(Bytes bytes, BlockId id, Pool* pool);
  void UnmapPages(BlockId id, Pool* pool);
  void AddUnmapped(BlockId id, Pool* pool);

  BlockList blocks_;
  std::map<SimulatedPool, std::uint32_t> ordinals_;
  std::vector<Pool> pools_;
  Bytes held_ = 0;
};

}  // namespace stalloc::planner
