// NativeSegments: what PyTorch's native caching allocator would hold of a device. Own implementation of documented
// behaviour (c10/cuda/CUDACachingAllocator, default settings): best fit by size, then address, in each pool; a miss
// takes a new segment from the device; segments stay until caches are emptied. Blocks are split and merged as there.
//
// Left out: a block that another stream uses can be had again as soon as it is freed, and memory never runs out. Bytes.
// Not thread-safe. Takes heap memory.
#pragma once

#include <cstdint>
#include <vector>

#include "proto/model/segment_blocks.h"

namespace stalloc {

class NativeSegments {
 public:
  using BlockId = BlockList::BlockId;

  // `bytes`: a multiple of kBlockAlignment, > 0.
  [[nodiscard]] BlockId Allocate(Bytes bytes, const SegmentPool& pool);
  void Free(BlockId block);
  // Segments in which nothing lives go back to the device; not those of graphs' pools.
  void EmptyCaches();

  [[nodiscard]] Bytes held_bytes() const noexcept { return held_; }

 private:
  struct Pool {
    SegmentPool key;
    FreeBlocks free;
  };
  [[nodiscard]] std::uint32_t Find(const SegmentPool& key);
  [[nodiscard]] BlockId NewSegment(Bytes bytes, std::uint32_t pool);

  BlockList blocks_;
  std::vector<Pool> pools_;
  Bytes held_ = 0;
  Offset next_address_ = ~Offset{0};  // above all that a run may hold
};

}  // namespace stalloc
