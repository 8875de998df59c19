// NativeModel: what PyTorch's native caching allocator would hold of a device for the requests that it sees.
//
// Own implementation of documented behaviour (c10/cuda/CUDACachingAllocator, default settings): best fit by size, then
// address, in a pool for each stream and for small and large blocks; a miss takes a segment from the device; segments
// stay until the program empties the cache. Blocks are split and merged as there. Left out: a block that another stream
// uses can be had again as soon as it is freed, and memory never runs out. The planner has the same model for whole
// traces (planner/analysis/simulate_native.h); tests hold the two against each other.
//
// Not thread-safe. Takes heap memory: some 150 bytes a block. Bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

#include "allocator/base/open_table.h"
#include "proto/model/trace.h"
#include "proto/model/units.h"

namespace stalloc {

class NativeModel {
 public:
  static constexpr std::size_t kMostBlocks = std::size_t{1} << 18;  // live; with more of them it ends

  // A block that is known is freed first. `bytes` > 0.
  void Allocate(std::uint64_t address, Bytes bytes, StreamHandle stream);
  // Nothing where it is not known.
  void Free(std::uint64_t address);
  // Segments in which nothing lives go back to the device.
  void EmptyCache();

  [[nodiscard]] Bytes held_bytes() const noexcept { return held_; }
  // The most that was held since the last call.
  Bytes TakePeak() noexcept;
  // More lived than it keeps: its figures say nothing any more.
  [[nodiscard]] bool overflowed() const noexcept { return overflowed_; }

 private:
  using BlockId = std::uint32_t;
  static constexpr BlockId kNone = 0xffffffffu;
  struct Block {
    std::uint64_t place = 0;  // orders free blocks of one size
    Bytes bytes = 0;
    BlockId previous = kNone;  // neighbours in the same segment
    BlockId next = kNone;
    std::uint32_t pool = 0;
    bool free = false;
  };
  struct FreeBlock {
    Bytes bytes = 0;
    std::uint64_t place = 0;
    BlockId id = 0;
    auto operator<=>(const FreeBlock&) const = default;
  };
  struct Pool {
    StreamHandle stream = 0;
    bool small = false;
    std::set<FreeBlock> free;  // the smallest first
  };

  [[nodiscard]] std::uint32_t PoolOf(StreamHandle stream, bool small);
  [[nodiscard]] BlockId Add(const Block& block);
  [[nodiscard]] BlockId NewSegment(Bytes bytes, std::uint32_t pool);
  void Split(BlockId id, Bytes bytes);
  void MergeWithNext(BlockId id);
  void SetFree(BlockId id);

  std::vector<Block> blocks_;
  std::vector<BlockId> unused_;
  std::vector<Pool> pools_;
  OpenTable<BlockId> live_{1024};  // by address
  std::uint64_t next_place_ = ~std::uint64_t{0};
  Bytes held_ = 0;
  Bytes peak_ = 0;
  bool overflowed_ = false;
};

}  // namespace stalloc
