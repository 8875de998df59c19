#include "allocator/torch/cuda_mem_pools.h"

#include <algorithm>
#include <utility>

namespace stalloc {
namespace {

std::uint64_t AddressKey(const void* pointer) noexcept { return reinterpret_cast<std::uint64_t>(pointer); }

}  // namespace

// Pools ---------------------------------------------------------------------------------------------------------------

MemPools::Pool* MemPools::Find(Device device, const Id& id) noexcept {
  const auto found = std::find_if(pools_.begin(), pools_.end(),
                                  [&](const Pool& pool) { return pool.device == device && pool.id == id; });
  return found == pools_.end() ? nullptr : &*found;
}

void MemPools::Made(Device device, const Id& id, bool may_plan) {
  const std::lock_guard lock(mutex_);
  if (Pool* const pool = Find(device, id); pool != nullptr) {
    ++pool->uses;
  } else {
    pools_.push_back({device, id, 1, may_plan});
  }
}

// For a graph's pool, which nobody made, nothing is kept.
void MemPools::Entered(Device device, const Id& id) {
  const std::lock_guard lock(mutex_);
  if (Pool* const pool = Find(device, id); pool != nullptr) ++pool->uses;
}

std::vector<void*> MemPools::Left(Device device, const Id& id) {
  std::vector<void*> kept;
  std::vector<void*> live;
  const std::lock_guard lock(mutex_);
  Pool* const pool = Find(device, id);
  if (pool == nullptr || --pool->uses > 0) return kept;
  pools_.erase(pools_.begin() + (pool - pools_.data()));
  blocks_.ForEach([&](std::uint64_t, const OfPool& of) {
    if (of.block.device == device && of.Is(id)) (of.freed ? kept : live).push_back(of.block.known.pointer);
  });
  for (const std::vector<void*>* const blocks : {&kept, &live}) {
    for (const void* const pointer : *blocks) Erase(pointer);
  }
  return kept;
}

bool MemPools::Serve(const PoolFilters& filters, Device device, const Id& id, cudaStream_t stream) {
  if (!Plans(device, id)) return false;
  if (!filters.IsCaptured(stream)) return true;
  LeaveToNative(device, id);
  return false;
}

void MemPools::LeaveToNative(Device device, const Id& id) {
  const std::lock_guard lock(mutex_);
  Pool* const pool = Find(device, id);
  if (pool == nullptr || !std::exchange(pool->planned, false)) return;
  std::vector<Block> live;
  blocks_.ForEach([&](std::uint64_t, const OfPool& of) {
    if (of.block.device == device && of.Is(id)) live.push_back(of.block);
  });
  Keep(live);
}

bool MemPools::Plans(Device device, const Id& id) noexcept {
  const std::lock_guard lock(mutex_);
  const Pool* const pool = Find(device, id);
  return pool != nullptr && pool->planned;
}

bool MemPools::Knows(Device device, const Id& id) noexcept {
  const std::lock_guard lock(mutex_);
  return Find(device, id) != nullptr;
}

// Blocks --------------------------------------------------------------------------------------------------------------

void MemPools::Add(const Block& block, const Id& id) noexcept {
  const std::lock_guard lock(mutex_);
  blocks_.Insert(AddressKey(block.known.pointer), {block, {id.first, id.second}, given_out_++});
  block_count_.store(blocks_.size(), std::memory_order_relaxed);
}

void MemPools::Erase(const void* pointer) noexcept {
  blocks_.Erase(AddressKey(pointer));
  block_count_.store(blocks_.size(), std::memory_order_relaxed);
}

void MemPools::Keep(const std::vector<Block>& blocks) noexcept {
  for (const Block& block : blocks) blocks_.Find(AddressKey(block.known.pointer))->kept = true;
}

bool MemPools::KeepsSlowly(void* pointer) noexcept {
  const std::lock_guard lock(mutex_);
  OfPool* const of = blocks_.Find(AddressKey(pointer));
  if (of == nullptr) return false;
  of->freed = true;
  const bool kept = of->kept;
  if (!kept) Erase(pointer);
  return kept;
}

std::vector<MemPools::Block> MemPools::Show(const Id& id) {
  std::vector<std::pair<std::uint64_t, Block>> in_order;
  const std::lock_guard lock(mutex_);
  for (Pool& pool : pools_) pool.planned = pool.planned && pool.id != id;
  blocks_.ForEach([&](std::uint64_t, const OfPool& of) {
    if (of.Is(id)) in_order.emplace_back(of.order, of.block);
  });
  std::sort(in_order.begin(), in_order.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Block> shown;
  shown.reserve(in_order.size());
  for (const auto& [order, block] : in_order) shown.push_back(block);
  Keep(shown);
  return shown;
}

bool MemPools::TakeLive(Device device, const Id& id, std::unordered_set<void*>& expected) const {
  bool all = true;
  const std::lock_guard lock(mutex_);
  blocks_.ForEach([&](std::uint64_t, const OfPool& of) {
    if (of.block.device != device || !of.Is(id) || of.freed) return;
    all = expected.erase(of.block.known.pointer) == 1 && all;
  });
  return all;
}

}  // namespace stalloc
