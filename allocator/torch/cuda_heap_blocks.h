// HeapBlocks: requested size and stream of every live block of the exact trace's heap, by address.
//
// The arena's engine knows this of its blocks; PageHeap keeps only what it needs to serve. Thread-safe.
#pragma once

#include <mutex>
#include <optional>
#include <vector>

#include "allocator/base/open_table.h"
#include "allocator/base/spin_mutex.h"
#include "proto/model/units.h"

namespace stalloc {

struct HeapBlock {
  void* pointer = nullptr;
  Bytes requested = 0;
  StreamHandle stream = 0;
};

class HeapBlocks {
 public:
  void Add(const HeapBlock& block) noexcept {
    const std::lock_guard lock(mutex_);
    blocks_.Insert(KeyOf(block.pointer), block);
  }
  std::optional<HeapBlock> Remove(const void* pointer) noexcept {
    const std::lock_guard lock(mutex_);
    return blocks_.Erase(KeyOf(pointer));
  }
  [[nodiscard]] std::optional<HeapBlock> Find(const void* pointer) const noexcept {
    const std::lock_guard lock(mutex_);
    const HeapBlock* block = blocks_.Find(KeyOf(pointer));
    return block == nullptr ? std::nullopt : std::optional(*block);
  }
  // In no particular order. Allocates: cold.
  [[nodiscard]] std::vector<HeapBlock> All() const {
    std::vector<HeapBlock> all;
    const std::lock_guard lock(mutex_);
    all.reserve(blocks_.size());
    blocks_.ForEach([&](std::uint64_t, const HeapBlock& block) { all.push_back(block); });
    return all;
  }

 private:
  static std::uint64_t KeyOf(const void* pointer) noexcept { return reinterpret_cast<std::uint64_t>(pointer); }

  mutable SpinMutex mutex_;
  OpenTable<HeapBlock> blocks_{64};
};

}  // namespace stalloc
