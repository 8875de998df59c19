#include "planner/analysis/block_list.h"

namespace stalloc::planner {

BlockList::BlockId FreeAndMerge(BlockList::BlockId id, BlockList* blocks, FreeBlocks* free) {
  const auto take = [&](BlockList::BlockId neighbour) {
    const bool is_free = neighbour != BlockList::kNoBlock && (*blocks)[neighbour].free;
    if (is_free) free->erase({(*blocks)[neighbour].bytes, (*blocks)[neighbour].address, neighbour});
    return is_free;
  };
  if (take((*blocks)[id].behind)) {
    blocks->MergeWithBehind(id);
  }
  if (take((*blocks)[id].before)) {
    id = (*blocks)[id].before;
    blocks->MergeWithBehind(id);
  }
  (*blocks)[id].free = true;
  free->insert({(*blocks)[id].bytes, (*blocks)[id].address, id});
  return id;
}

}  // namespace stalloc::planner
