#include "planner/analysis/simulate_expandable.h"

#include <algorithm>
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
  if (blocks_[id].bytes - bytes >= kBlockAlignment) blocks_.FreeRest(id, bytes, &pool.free);
  return id;
}

void ExpandableSimulation::Free(BlockId block) { blocks_.Free(block, &pools_[blocks_[block].pool].free); }

void ExpandableSimulation::EmptyCaches() {
  for (Pool& pool : pools_) {
    if (pool.captured) continue;
    const FreeBlocks free = pool.free;
    for (const FreeBlock& block : free) UnmapPages(block.id, &pool);
  }
}

ExpandableSimulation::Pool& ExpandableSimulation::Find(const SimulatedPool& key) {
  const auto [found, is_new] = ordinals_.try_emplace(key, static_cast<std::uint32_t>(pools_.size()));
  if (is_new) {
    Pool& pool = pools_.emplace_back();
    pool.ordinal = found->second;
    pool.page = key.small ? kSmallSegment : kLargeSegment;
    pool.captured = key.captured;
    AddUnmapped(blocks_.Add({.bytes = kRangeBytes / pool.page * pool.page, .pool = pool.ordinal}), &pool);
  }
  return pools_[found->second];
}

bool ExpandableSimulation::IsUnmapped(BlockId id, const Pool& pool) const {
  if (id == BlockList::kNoBlock) return false;
  const auto found = pool.unmapped.find(blocks_[id].address);
  return found != pool.unmapped.end() && found->second == id;
}

Bytes ExpandableSimulation::MostBytes(const FreeBlock& block, const Pool& pool) const {
  const BlockId after = blocks_[block.id].after;
  return block.bytes + (IsUnmapped(after, pool) ? blocks_[after].bytes : 0);
}

FreeBlocks::iterator ExpandableSimulation::FindFit(Bytes bytes, Pool& pool) {
  auto fit = pool.free.lower_bound({bytes, 0, 0});
  if (fit == pool.free.end()) return fit;
  for (auto next = std::next(fit); next != pool.free.end() && MostBytes(*next, pool) < MostBytes(*fit, pool); ++next) {
    fit = next;
  }
  return fit;
}

// Maps pages so that there is a free block of at least `bytes`, which `free` does not have.
ExpandableSimulation::BlockId ExpandableSimulation::Grow(Bytes bytes, Pool* pool) {
  const BlockId id = FindRange(bytes, *pool);
  if (blocks_[id].free) {
    pool->free.erase(blocks_.AsFree(id));
  } else {
    MapFirst(bytes, id, pool);
  }
  while (blocks_[id].bytes < bytes) {
    const BlockId after = blocks_[id].after;
    if (blocks_[after].free) {
      pool->free.erase(blocks_.AsFree(after));
    } else {
      MapFirst(bytes - blocks_[id].bytes, after, pool);
    }
    blocks_.MergeWithBehind(id);
  }
  return id;
}

// The beginning of the lowest range that fits, of free and unmapped blocks in a row.
ExpandableSimulation::BlockId ExpandableSimulation::FindRange(Bytes bytes, const Pool& pool) const {
  for (const auto& [address, unmapped] : pool.unmapped) {
    const BlockId before = blocks_[unmapped].before;
    const BlockId first = before != BlockList::kNoBlock && blocks_[before].free ? before : unmapped;
    Bytes found = 0;
    for (BlockId id = first; id != BlockList::kNoBlock && (blocks_[id].free || IsUnmapped(id, pool));) {
      found += blocks_[id].bytes;
      if (found >= bytes) return first;
      id = blocks_[id].after;
    }
  }
  return pool.unmapped.rbegin()->second;  // a range is larger than anything that is requested
}

// For an unmapped block, as many pages as `bytes` need; the rest stays unmapped.
void ExpandableSimulation::MapFirst(Bytes bytes, BlockId id, Pool* pool) {
  const Bytes mapped = std::min(RoundUp(bytes, pool->page), blocks_[id].bytes);
  pool->unmapped.erase(blocks_[id].address);
  if (mapped < blocks_[id].bytes) {
    const BlockId rest = blocks_.Split(id, mapped);
    pool->unmapped.emplace(blocks_[rest].address, rest);
  }
  held_ += mapped;
}

void ExpandableSimulation::UnmapPages(BlockId id, Pool* pool) {
  const Offset begin = RoundUp(blocks_[id].address, pool->page);
  const Offset end = (blocks_[id].address + blocks_[id].bytes) / pool->page * pool->page;
  if (begin >= end) return;
  pool->free.erase(blocks_.AsFree(id));
  if (begin > blocks_[id].address) {
    const BlockId pages = blocks_.Split(id, begin - blocks_[id].address);
    pool->free.insert(blocks_.AsFree(id));
    id = pages;
  }
  if (end < blocks_[id].address + blocks_[id].bytes) {
    pool->free.insert(blocks_.AsFree(blocks_.Split(id, end - begin)));
  }
  held_ -= end - begin;
  AddUnmapped(id, pool);
}

// Frees it together with what is unmapped next to it.
void ExpandableSimulation::AddUnmapped(BlockId id, Pool* pool) {
  blocks_[id].free = false;
  if (const BlockId after = blocks_[id].after; IsUnmapped(after, *pool)) {
    pool->unmapped.erase(blocks_[after].address);
    blocks_.MergeWithBehind(id);
  }
  if (const BlockId before = blocks_[id].before; IsUnmapped(before, *pool)) {
    blocks_.MergeWithBehind(before);
    return;
  }
  pool->unmapped.emplace(blocks_[id].address, id);
}

}  // namespace stalloc::planner
