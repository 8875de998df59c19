#include "proto/model/segment_blocks.h"

namespace stalloc {

void BlockList::Free(BlockId id, FreeBlocks* free) {
  const auto take = [&](BlockId neighbour) {
    const bool is_free = neighbour != kNoBlock && blocks_[neighbour].free;
    if (is_free) free->erase(AsFree(neighbour));
    return is_free;
  };
  if (take(blocks_[id].after)) MergeWithBehind(id);
  if (take(blocks_[id].before)) {
    id = blocks_[id].before;
    MergeWithBehind(id);
  }
  blocks_[id].free = true;
  free->insert(AsFree(id));
}

void BlockList::FreeRest(BlockId id, Bytes bytes, FreeBlocks* free) {
  const BlockId rest = Split(id, bytes);
  blocks_[rest].free = true;
  free->insert(AsFree(rest));
}

}  // namespace stalloc
