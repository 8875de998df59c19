// MemPools: the program's MemPools (torch.cuda.MemPool) that the plan serves as it serves everything else, and what of
// the arena is theirs.
//
// A MemPool keeps its blocks apart from others. A program sees that in three ways: a graph that is captured into the
// pool keeps addresses, a snapshot of it lists memory that may be registered with NCCL, a checkpoint sets it back.
// Until the first of these its requests lie in the arena like all others, and what they leave idle serves others; from
// then on they are the native allocator's, as are those of pools with an allocator of their own, of pools that are not
// to be split and of graphs' pools. What a snapshot has shown, and what was live when a graph was captured, which may
// read it, is the pool's as long as that lives: its bytes stay where they are, freed or not.
//
//   Made -> planned --captured, shown, checkpointed--> native        used by nobody any more: forgotten
//
// Thread-safe. Add and Keeps are noexcept, with no heap memory; without blocks of MemPools Keeps is one relaxed load.
#pragma once

#include <c10/core/CachingDeviceAllocator.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <unordered_set>
#include <vector>

#include "allocator/base/open_table.h"
#include "allocator/torch/cuda_known_blocks.h"
#include "allocator/torch/cuda_pools.h"

namespace stalloc {

class MemPools {
 public:
  using Device = c10::DeviceIndex;
  using Id = c10::MempoolId_t;
  struct Block {
    KnownBlock known;
    Device device = 0;
  };

  // The pool was made (`may_plan`: it is not peculiar), or one more uses it.
  void Made(Device device, const Id& id, bool may_plan);
  // It is opened, by a thread or a capture, and used by one more until it is left.
  void Entered(Device device, const Id& id);
  // One less uses it. Of the last one: the blocks that were freed, but kept. They are the caller's to free.
  [[nodiscard]] std::vector<void*> Left(Device device, const Id& id);
  // Further requests are the native allocator's, and what lives now is kept until the pool is left.
  void LeaveToNative(Device device, const Id& id);
  [[nodiscard]] bool Plans(Device device, const Id& id) noexcept;
  // A request of the open pool is served like any other. One that is captured leaves the pool to the native allocator:
  // a graph keeps the addresses of what it has captured.
  [[nodiscard]] bool Serve(const PoolFilters& filters, Device device, const Id& id, cudaStream_t stream);
  // The pool was made, and is used: else it is a graph's.
  [[nodiscard]] bool Knows(Device device, const Id& id) noexcept;

  // A block of the arena was given out for a pool.
  void Add(const Block& block, const Id& id) noexcept;
  // The block is about to be freed. True: it is kept, and stays as it is until its pool is left.
  [[nodiscard]] bool Keeps(void* pointer) noexcept {
    return block_count_.load(std::memory_order_relaxed) != 0 && KeepsSlowly(pointer);
  }
  // The pool's blocks in the arena, on all devices, in the order in which they were given out, which is the same in
  // ranks that do the same. From now on they are kept.
  [[nodiscard]] std::vector<Block> Show(const Id& id);
  // Takes the pool's live blocks in the arena out of `expected`; false if one is not there.
  [[nodiscard]] bool TakeLive(Device device, const Id& id, std::unordered_set<void*>& expected) const;

 private:
  struct Pool {
    Device device = 0;
    Id id;
    int uses = 0;
    bool planned = false;
  };
  struct OfPool {
    Block block;
    std::uint64_t id[2] = {};  // of the pool
    std::uint64_t order = 0;   // in which it was given out, of all
    bool kept = false;
    bool freed = false;

    [[nodiscard]] bool Is(const Id& other) const noexcept { return id[0] == other.first && id[1] == other.second; }
  };

  [[nodiscard]] bool KeepsSlowly(void* pointer) noexcept;
  // All REQUIRE: mutex_ is held.
  [[nodiscard]] Pool* Find(Device device, const Id& id) noexcept;
  void Erase(const void* pointer) noexcept;
  void Keep(const std::vector<Block>& blocks) noexcept;

  mutable std::mutex mutex_;  // guards all below it
  std::vector<Pool> pools_;   // that were made and are used
  OpenTable<OfPool> blocks_{64};
  std::uint64_t given_out_ = 0;
  std::atomic<std::size_t> block_count_{0};  // of them; read without the lock
};

}  // namespace stalloc
