// KnownBlocks: requested size and stream of blocks, by address.
//
// Kept for addresses in graph pools; the engine knows this of an arena's blocks. Thread-safe.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "allocator/base/open_table.h"
#include "allocator/base/spin_mutex.h"
#include "proto/model/units.h"

namespace stalloc {

struct KnownBlock {
  void* pointer = nullptr;
  Bytes requested = 0;
  StreamHandle stream = 0;
  std::uint32_t pool = 0;  // of what was captured: 1 + the ordinal of its pool
};

class KnownBlocks {
 public:
  void Add(const KnownBlock& block) noexcept {
    const std::lock_guard lock(mutex_);
    blocks_.Insert(KeyOf(block.pointer), block);
  }
  std::optional<KnownBlock> Remove(const void* pointer) noexcept {
    const std::lock_guard lock(mutex_);
    return blocks_.Erase(KeyOf(pointer));
  }
  [[nodiscard]] std::optional<KnownBlock> Find(const void* pointer) const noexcept {
    const std::lock_guard lock(mutex_);
    const KnownBlock* block = blocks_.Find(KeyOf(pointer));
    return block == nullptr ? std::nullopt : std::optional(*block);
  }
  // In no particular order. Allocates: cold.
  [[nodiscard]] std::vector<KnownBlock> All() const {
    std::vector<KnownBlock> all;
    const std::lock_guard lock(mutex_);
    all.reserve(blocks_.size());
    blocks_.ForEach([&](std::uint64_t, const KnownBlock& block) { all.push_back(block); });
    return all;
  }

 private:
  static std::uint64_t KeyOf(const void* pointer) noexcept { return reinterpret_cast<std::uint64_t>(pointer); }

  mutable SpinMutex mutex_;
  OpenTable<KnownBlock> blocks_{64};
};

}  // namespace stalloc
