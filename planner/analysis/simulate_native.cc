#include "planner/analysis/simulate_native.h"

namespace stalloc::planner {
namespace {

// A large block is not cut for a small rest: that would be of no use to large requests.
bool IsWorthSplitting(Bytes rest, bool small) { return small ? rest >= kBlockAlignment : rest > kSmallRequest; }

}  // namespace

NativeSimulation::BlockId NativeSimulation::Allocate(Bytes bytes, const SimulatedPool& key) {
  Pool& pool = Find(key);
  BlockId id = 0;
  if (const auto fit = pool.free.lower_bound({bytes, 0, 0}); fit != pool.free.end()) {
    id = fit->id;
    pool.free.erase(fit);
  } else {
    id = NewSegment(SegmentBytes(bytes), pool);
  }
  blocks_[id].free = false;
  if (IsWorthSplitting(blocks_[id].bytes - bytes, pool.small)) {
    blocks_.FreeRest(id, bytes, &pool.free);
  }
  return id;
}

void NativeSimulation::Free(BlockId block) { blocks_.Free(block, &pools_[blocks_[block].pool].free); }

// For whole segments.
void NativeSimulation::EmptyCaches() {
  for (Pool& pool : pools_) {
    if (pool.captured) continue;
    std::erase_if(pool.free, [this](const FreeBlock& block) {
      const BlockList::SpaceBlock& segment = blocks_[block.id];
      const bool whole = segment.before == BlockList::kNoBlock && segment.after == BlockList::kNoBlock;
      held_ -= whole ? segment.bytes : 0;
      return whole;
    });
  }
}

NativeSimulation::Pool& NativeSimulation::Find(const SimulatedPool& key) {
  const auto [found, is_new] = ordinals_.try_emplace(key, static_cast<std::uint32_t>(pools_.size()));
  if (is_new) {
    pools_.push_back({{}, found->second, key.small, key.captured});
  }
  return pools_[found->second];
}

// Each segment lies below those before it, as the driver hands them out: among equal blocks those of the newest segment
// are taken first. Segments never merge.
NativeSimulation::BlockId NativeSimulation::NewSegment(Bytes bytes, const Pool& pool) {
  BlockList::SpaceBlock segment;
  next_address_ -= bytes;
  segment.address = next_address_;
  segment.bytes = bytes;
  segment.pool = pool.ordinal;
  held_ += bytes;
  return blocks_.Add(segment);
}

}  // namespace stalloc::planner
