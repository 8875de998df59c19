#include "allocator/arena/block_cache.h"

namespace stalloc {

void BlockCache::Put(BlockPointer block) {
  const UseTag tag = block->recorded ? kQuarantine : block->stream;
  const Bytes bytes = block->bytes;
  bytes_ += bytes;
  blocks_.push_back({std::move(block), tag});
  if (tag != kQuarantine) {
    by_key_[{bytes, tag}].push_back(std::prev(blocks_.end()));
  }
}

BlockCache::BlockPointer BlockCache::Remove(List::iterator entry) {
  BlockPointer block = std::move(entry->block);
  bytes_ -= block->bytes;
  blocks_.erase(entry);
  return block;
}

BlockCache::BlockPointer BlockCache::Take(Bytes bytes, StreamHandle stream) {
  for (const UseTag tag : {UseTag{stream}, kClean}) {
    const auto found = by_key_.find({bytes, tag});
    if (found != by_key_.end() && !found->second.empty()) {
      const List::iterator entry = found->second.back();
      found->second.pop_back();
      return Remove(entry);
    }
  }
  return nullptr;
}

BlockCache::BlockPointer BlockCache::TakeOldestClean() {
  if (blocks_.empty() || blocks_.front().tag != kClean) {
    return nullptr;
  }
  const List::iterator entry = blocks_.begin();
  const auto found = by_key_.find({entry->block->bytes, kClean});
  found->second.pop_front();
  if (found->second.empty()) {
    by_key_.erase(found);  // sizes of a run without a period would pile up
  }
  return Remove(entry);
}

void BlockCache::PutBackOldest(BlockPointer block) {
  const Bytes bytes = block->bytes;
  bytes_ += bytes;
  blocks_.push_front({std::move(block), kClean});
  by_key_[{bytes, kClean}].push_front(blocks_.begin());
}

void BlockCache::AllClean() {
  by_key_.clear();
  for (auto entry = blocks_.begin(); entry != blocks_.end(); ++entry) {
    entry->tag = kClean;
    by_key_[{entry->block->bytes, kClean}].push_back(entry);
  }
}

}  // namespace stalloc
