// BlockCache: freed blocks that keep their mapping and wait for a request of their exact size.
//
// A block serves its own stream at once. Other streams, and blocks that several streams used, wait until the device was
// synchronised (AllClean): from then on it serves anyone, and may be taken apart. Blocks are ordered by the time of
// their free: the clean ones are always the oldest. Reuse takes the youngest, taking apart the oldest. Not thread-safe.
// Bytes.
#pragma once

#include <deque>
#include <list>
#include <map>
#include <memory>
#include <unordered_map>
#include <utility>

#include "allocator/arena/mapped_block.h"

namespace stalloc {

class BlockCache {
 public:
  using BlockPointer = std::unique_ptr<MappedBlock>;

  // The block was just freed.
  void Put(BlockPointer block);
  // Null if no block of exactly this size may serve the stream now.
  [[nodiscard]] BlockPointer Take(Bytes bytes, StreamHandle stream);
  // The oldest clean block; null if none. Its owner puts it back with PutBackOldest if it cannot be taken apart.
  [[nodiscard]] BlockPointer TakeOldestClean();
  void PutBackOldest(BlockPointer block);
  void AllClean();

  [[nodiscard]] bool empty() const noexcept { return blocks_.empty(); }
  [[nodiscard]] Bytes bytes() const noexcept { return bytes_; }
  template <typename Visit>
  void ForEach(Visit visit) const {
    for (const Entry& entry : blocks_) {
      visit(*entry.block);
    }
  }

 private:
  struct Entry {
    BlockPointer block;
    UseTag tag = kClean;
  };
  using List = std::list<Entry>;  // oldest first
  using Key = std::pair<Bytes, UseTag>;
  struct KeyHash {
    std::size_t operator()(const Key& key) const noexcept { return key.first * 0x9E3779B97F4A7C15u ^ key.second; }
  };

  BlockPointer Remove(List::iterator entry);

  List blocks_;
  // Oldest first in each deque. What is in quarantine has no key.
  std::unordered_map<Key, std::deque<List::iterator>, KeyHash> by_key_;
  Bytes bytes_ = 0;
};

}  // namespace stalloc
