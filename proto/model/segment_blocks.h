// What models of PyTorch's caching allocators share: sizes of segments, and blocks of simulated segments, linked to
// their neighbours in space; freed ids are used again. Bytes. Not thread-safe.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "proto/model/units.h"

namespace stalloc {

inline constexpr Bytes kSmallRequest = Bytes{1} << 20;   // up to here requests share small segments
inline constexpr Bytes kSmallSegment = Bytes{2} << 20;   // also the page of a small growing segment
inline constexpr Bytes kLargeSegment = Bytes{20} << 20;  // also the page of a large growing segment
inline constexpr Bytes kLargeRequest = Bytes{10} << 20;  // from here on requests have segments of their own size
inline constexpr Bytes kSegmentUnit = Bytes{2} << 20;

// The bytes that a request without a free block takes from the device.
[[nodiscard]] constexpr Bytes SegmentBytes(Bytes bytes) {
  if (bytes <= kSmallRequest) return kSmallSegment;
  return bytes < kLargeRequest ? kLargeSegment : RoundUp(bytes, kSegmentUnit);
}

// Blocks of different pools never share memory. Graph captures have pools of their own.
struct SegmentPool {
  StreamHandle stream = 0;
  bool small = false;
  bool captured = false;

  auto operator<=>(const SegmentPool&) const = default;
};

// Free blocks of a pool: the smallest that is large enough comes first, among equals the lowest.
struct FreeBlock {
  Bytes bytes = 0;
  Offset address = 0;
  std::uint32_t id = 0;

  auto operator<=>(const FreeBlock&) const = default;
};
using FreeBlocks = std::set<FreeBlock>;

class BlockList {
 public:
  using BlockId = std::uint32_t;
  static constexpr BlockId kNoBlock = 0xffffffffu;

  struct SpaceBlock {
    Offset address = 0;
    Bytes bytes = 0;
    BlockId before = kNoBlock;  // neighbours in the same segment
    BlockId after = kNoBlock;
    std::uint32_t pool = 0;
    bool free = false;
  };

  [[nodiscard]] SpaceBlock& operator[](BlockId id) { return blocks_[id]; }
  [[nodiscard]] const SpaceBlock& operator[](BlockId id) const { return blocks_[id]; }

  [[nodiscard]] BlockId Add(const SpaceBlock& block) {
    if (unused_.empty()) {
      blocks_.push_back(block);
      return static_cast<BlockId>(blocks_.size() - 1);
    }
    const BlockId id = unused_.back();
    unused_.pop_back();
    blocks_[id] = block;
    return id;
  }

  void Remove(BlockId id) { unused_.push_back(id); }

  [[nodiscard]] FreeBlock AsFree(BlockId id) const { return {blocks_[id].bytes, blocks_[id].address, id}; }

  // Makes the block free together with its free neighbours: `free` then has the whole.
  void Free(BlockId id, FreeBlocks* free);
  // Makes what `id` has after its first `bytes` a free block. REQUIRES: it has more.
  void FreeRest(BlockId id, Bytes bytes, FreeBlocks* free);

  // Cuts `id` after its first `bytes`; returns the rest. REQUIRES: it has more.
  BlockId Split(BlockId id, Bytes bytes) {
    SpaceBlock rest = blocks_[id];
    rest.address += bytes;
    rest.bytes -= bytes;
    rest.before = id;
    const BlockId rest_id = Add(rest);
    if (rest.after != kNoBlock) blocks_[rest.after].before = rest_id;
    blocks_[id].bytes = bytes;
    blocks_[id].after = rest_id;
    return rest_id;
  }

  // `left` takes over the block after it, whose id ends.
  void MergeWithBehind(BlockId left) {
    const BlockId gone = blocks_[left].after;
    blocks_[left].bytes += blocks_[gone].bytes;
    blocks_[left].after = blocks_[gone].after;
    if (blocks_[left].after != kNoBlock) blocks_[blocks_[left].after].before = left;
    unused_.push_back(gone);
  }

 private:
  std::vector<SpaceBlock> blocks_;
  std::vector<BlockId> unused_;
};

}  // namespace stalloc
