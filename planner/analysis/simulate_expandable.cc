#include "planner/analysis/simulate_expandable.h"

#include <iterator>

namespace stalloc::planner {

ExpandableSimulation::BlockId ExpandableSimulation::Allocate(Bytes bytes, const SimulatedPool& key) {
  Pool& pool = Find(key);
  BlockId id = 0;
  if (const auto fit = FindFit(bytes, pool); fit != pool.free.end()) {
    id = fit->id;
    pool.free.erase(fit);
  } else {
    id = Grow(SegmentBytes(bytes), &pool);
  }
  blocks_[id].free = false;
  CutRest(id, bytes, &pool);
  return id;
}

void ExpandableSimulation::Free(BlockId block) {
  Pool& pool = pools_[blocks_[block].pool];
  const BlockId whole = FreeAndMerge(block, &blocks_, &pool.free);
  if (blocks_[whole].behind == BlockList::kNoBlock) {
    pool.last = whole;
  }
}

ExpandableSimulation::Pool& ExpandableSimulation::Find(const SimulatedPool& key) {
  const auto [found, is_new] = ordinals_.try_emplace(key, static_cast<std::uint32_t>(pools_.size()));
  if (is_new) {
    Pool& pool = pools_.emplace_back();
    pool.ordinal = found->second;
    pool.page = key.small ? kSmallSegment : kLargeSegment;
  }
  return pools_[found->second];
}

FreeBlocks::iterator ExpandableSimulation::FindFit(Bytes bytes, Pool& pool) {
  const auto fit = pool.free.lower_bound({bytes, 0, 0});
  if (fit == pool.free.end() || fit->id != pool.last || std::next(fit) == pool.free.end()) {
    return fit;
  }
  return std::next(fit);
}

// Maps pages so that a free block of at least `bytes` ends the range; what is free there already is part of it.
ExpandableSimulation::BlockId ExpandableSimulation::Grow(Bytes bytes, Pool* pool) {
  const bool extends = pool->last != BlockList::kNoBlock && blocks_[pool->last].free;
  const Bytes there = extends ? blocks_[pool->last].bytes : 0;
  const Bytes added = there < bytes ? RoundUp(bytes - there, pool->page) : 0;
  if (extends) {
    pool->free.erase({there, blocks_[pool->last].address, pool->last});
    blocks_[pool->last].bytes += added;
  } else {
    BlockList::SpaceBlock block;
    block.address = pool->mapped;
    block.bytes = added;
    block.before = pool->last;
    block.pool = pool->ordinal;
    const BlockId id = blocks_.Add(block);
    if (pool->last != BlockList::kNoBlock) blocks_[pool->last].behind = id;
    pool->last = id;
  }
  pool->mapped += added;
  held_ += added;
  return pool->last;
}

void ExpandableSimulation::CutRest(BlockId id, Bytes bytes, Pool* pool) {
  if (blocks_[id].bytes - bytes < kBlockAlignment) {
    return;
  }
  const BlockId rest = blocks_.Split(id, bytes);
  blocks_[rest].free = true;
  pool->free.insert({blocks_[rest].bytes, blocks_[rest].address, rest});
  if (pool->last == id) {
    pool->last = rest;
  }
}

}  // namespace stalloc::planner
