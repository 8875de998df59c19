#include "allocator/torch/cpu_upstream.h"

#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>
#include <pthread.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <vector>

namespace stalloc {
namespace {

// Whose locks a fork has to take. pthread_atfork takes no argument and cannot be undone.
std::mutex g_instances_mutex;
std::vector<CpuUpstream*>& Instances() {
  static auto& instances = *new std::vector<CpuUpstream*>;
  return instances;
}

void BeforeFork() {
  g_instances_mutex.lock();
  for (CpuUpstream* instance : Instances()) instance->LockForFork();
}

void AfterFork() {
  for (CpuUpstream* instance : Instances()) instance->UnlockAfterFork();
  g_instances_mutex.unlock();
}

void JoinForks(CpuUpstream* instance) {
  const std::lock_guard lock(g_instances_mutex);
  if (Instances().empty()) pthread_atfork(&BeforeFork, &AfterFork, &AfterFork);
  Instances().push_back(instance);
}

}  // namespace

CpuUpstream::CpuUpstream(c10::Allocator* previous, VmmDriver* driver, Bytes limit_bytes)
    : previous_(previous), driver_(driver), limit_bytes_(limit_bytes) {
  JoinForks(this);
}

void* CpuUpstream::Allocate(Bytes requested, StreamHandle) {
  if (limit_bytes_ != 0) CheckLimit(requested);
  void* pointer = previous_->raw_allocate(requested);
  const Bytes bytes = BlockBytes(requested);  // as everything here counts, so that E compares like with like
  const Bytes held = held_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  Bytes peak = peak_.load(std::memory_order_relaxed);
  while (held > peak && !peak_.compare_exchange_weak(peak, held, std::memory_order_relaxed)) {
  }
  Shard& shard = ShardOf(pointer);
  const std::lock_guard lock(shard.mutex);
  shard.bytes.Insert(reinterpret_cast<std::uintptr_t>(pointer), bytes);
  return pointer;
}

void CpuUpstream::Free(void* pointer) noexcept {
  {
    Shard& shard = ShardOf(pointer);
    const std::lock_guard lock(shard.mutex);
    const std::optional<Bytes> bytes = shard.bytes.Erase(reinterpret_cast<std::uintptr_t>(pointer));
    held_.fetch_sub(bytes.value_or(0), std::memory_order_relaxed);
  }
  previous_->raw_deallocate(pointer);
}

Upstream::Held CpuUpstream::HeldBytes() const {
  const Bytes peak = peak_.load(std::memory_order_relaxed);
  return {held_.load(std::memory_order_relaxed), std::max(peak, earlier_peak_.load(std::memory_order_relaxed)), peak};
}

void CpuUpstream::BeginIteration() noexcept {
  const Bytes peak = std::max(peak_.load(std::memory_order_relaxed), earlier_peak_.load(std::memory_order_relaxed));
  earlier_peak_.store(peak, std::memory_order_relaxed);
  const Bytes last = peak_.exchange(held_.load(std::memory_order_relaxed), std::memory_order_relaxed);
  earlier_peak_.store(std::max(peak, last), std::memory_order_relaxed);
}

void CpuUpstream::LockForFork() noexcept {
  for (Shard& shard : shards_) shard.mutex.lock();
}

void CpuUpstream::UnlockAfterFork() noexcept {
  for (Shard& shard : shards_) shard.mutex.unlock();
}

CpuUpstream::Shard& CpuUpstream::ShardOf(const void* pointer) noexcept {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  return shards_[(address ^ (address >> 12)) / 64 % kShards];
}

// The cap of a device of that size. Requests of two threads at once can exceed it by one of them: it is a tool for
// traces and tests, not a guarantee.
void CpuUpstream::CheckLimit(Bytes requested) const {
  MemoryInfo info;
  const bool known = driver_ != nullptr && driver_->GetMemoryInfo(&info).ok();
  const Bytes mapped = known ? info.total - info.free : 0;
  const Bytes held = held_.load(std::memory_order_relaxed);
  if (mapped + held + requested <= limit_bytes_) return;
  c10::profiledCPUMemoryReporter().OutOfMemory(requested);
  TORCH_CHECK(false, "DefaultCPUAllocator: can't allocate memory: you tried to allocate ", requested,
              " bytes. Error code 12 (STALLOC_MEMORY_LIMIT is ", limit_bytes_, " bytes; in use: ", mapped,
              " by stalloc's arena or heap, ", held, " by blocks of torch's own allocator)");
}

}  // namespace stalloc
