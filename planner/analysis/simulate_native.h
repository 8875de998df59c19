// The native caching allocator: best fit by size, then address, in each pool; a miss takes a new segment from the
// device; segments stay until caches are emptied.
#pragma once

#include <map>

#include "planner/analysis/block_list.h"
#include "planner/analysis/simulated_allocator.h"

namespace stalloc::planner {

class NativeSimulation final : public SimulatedAllocator {
 public:
  [[nodiscard]] BlockId Allocate(Bytes bytes, const SimulatedPool& pool) override;
  void Free(BlockId block) override;
  void EmptyCaches() override;
  [[nodiscard]] Bytes held_bytes() const override { return held_; }

 private:
  struct Pool {
    FreeBlocks free;
    std::uint32_t ordinal = 0;
    bool small = false;
    bool captured = false;
  };
  Pool& Find(const SimulatedPool& pool);
  BlockId NewSegment(Bytes bytes, const Pool& pool);

  BlockList blocks_;
  std::map<SimulatedPool, std::uint32_t> ordinals_;
  std::vector<Pool> pools_;
  Bytes held_ = 0;
  Offset next_address_ = Offset{1} << 60;  // above all that a run may hold
};

}  // namespace stalloc::planner
