#include "proto/model/native_segments.h"

#include <algorithm>

namespace stalloc {
namespace {

// A large block is not cut for a small rest: that would be of no use to large requests.
bool IsWorthSplitting(Bytes rest, bool small) { return small ? rest >= kBlockAlignment : rest > kSmallRequest; }

}  // namespace

NativeSegments::BlockId NativeSegments::Allocate(Bytes bytes, const SegmentPool& key) {
  const std::uint32_t number = Find(key);
  FreeBlocks& free = pools_[number].free;
  BlockId id = 0;
  if (const auto fit = free.lower_bound({bytes, 0, 0}); fit != free.end()) {
    id = fit->id;
    free.erase(fit);
  } else {
    id = NewSegment(SegmentBytes(bytes), number);
  }
  blocks_[id].free = false;
  if (IsWorthSplitting(blocks_[id].bytes - bytes, key.small)) blocks_.FreeRest(id, bytes, &free);
  return id;
}

void NativeSegments::Free(BlockId block) { blocks_.Free(block, &pools_[blocks_[block].pool].free); }

// For whole segments.
void NativeSegments::EmptyCaches() {
  for (Pool& pool : pools_) {
    if (pool.key.captured) continue;
    std::erase_if(pool.free, [this](const FreeBlock& block) {
      const BlockList::SpaceBlock& segment = blocks_[block.id];
      const bool whole = segment.before == BlockList::kNoBlock && segment.after == BlockList::kNoBlock;
      if (whole) {
        held_ -= segment.bytes;
        blocks_.Remove(block.id);
      }
      return whole;
    });
  }
}

// A run has few streams.
std::uint32_t NativeSegments::Find(const SegmentPool& key) {
  const auto found = std::find_if(pools_.begin(), pools_.end(), [&](const Pool& pool) { return pool.key == key; });
  if (found != pools_.end()) return static_cast<std::uint32_t>(found - pools_.begin());
  pools_.push_back({key, {}});
  return static_cast<std::uint32_t>(pools_.size() - 1);
}

// Each segment lies below those before it, as the driver hands them out: among equal blocks those of the newest segment
// are taken first. Segments never merge.
NativeSegments::BlockId NativeSegments::NewSegment(Bytes bytes, std::uint32_t pool) {
  next_address_ -= bytes;
  held_ += bytes;
  return blocks_.Add({.address = next_address_, .bytes = bytes, .pool = pool});
}

}  // namespace stalloc
