// Ledger: bytes live on one device, wherever they came from, and the peak of their sum.
//
// Blocks of arena and heap are only summed (their owners know them by address); blocks of upstream are kept by address,
// since nobody else tells their size at the free. Every block counts BlockBytes(requested), as PyTorch rounds it.
// Thread-safe; no heap memory, no system call except when a table doubles. Not for a forked child: a shard may be
// locked there for ever.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <mutex>
#include <span>

#include "allocator/base/open_table.h"
#include "allocator/base/spin_mutex.h"
#include "proto/model/units.h"

namespace stalloc {

class Ledger {
 public:
  // A block of arena or heap. `bytes` are rounded.
  void Add(Bytes bytes) noexcept {
    const Bytes live = live_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    Bytes peak = peak_.load(std::memory_order_relaxed);
    while (live > peak && !peak_.compare_exchange_weak(peak, live, std::memory_order_relaxed)) {
    }
  }
  void Remove(Bytes bytes) noexcept { live_.fetch_sub(bytes, std::memory_order_relaxed); }

  // A block of upstream. REQUIRES: `pointer` is not in the ledger.
  void AddUpstream(const void* pointer, Bytes bytes, StreamHandle stream = 0) noexcept {
    Shard& shard = ShardOf(pointer);
    {
      const std::lock_guard lock(shard.mutex);
      shard.blocks.Insert(KeyOf(pointer), {bytes, stream});
    }
    Add(bytes);
  }
  // Its rounded bytes; 0 when it is not in the ledger.
  Bytes RemoveUpstream(const void* pointer) noexcept {
    Shard& shard = ShardOf(pointer);
    Bytes bytes = 0;
    {
      const std::lock_guard lock(shard.mutex);
      bytes = shard.blocks.Erase(KeyOf(pointer)).value_or(Value{}).bytes;
    }
    Remove(bytes);
    return bytes;
  }
  [[nodiscard]] Bytes FindUpstream(const void* pointer) const noexcept {
    const Shard& shard = ShardOf(pointer);
    const std::lock_guard lock(shard.mutex);
    const Value* value = shard.blocks.Find(KeyOf(pointer));
    return value == nullptr ? 0 : value->bytes;
  }

  struct UpstreamBlock {
    std::uint64_t address = 0;
    Bytes bytes = 0;  // rounded
    StreamHandle stream = 0;
  };
  // Copies what fits of upstream's live blocks into `blocks`, in no particular order; returns how many there are. Takes
  // no heap memory; what begins or ends meanwhile may be missing.
  [[nodiscard]] std::size_t CopyUpstreamBlocks(std::span<UpstreamBlock> blocks) const noexcept {
    std::size_t count = 0;
    for (const Shard& shard : shards_) {
      const std::lock_guard lock(shard.mutex);
      shard.blocks.ForEach([&](std::uint64_t key, const Value& value) {
        if (count < blocks.size()) blocks[count] = {key, value.bytes, value.stream};
        ++count;
      });
    }
    return count;
  }

  [[nodiscard]] Bytes live_bytes() const noexcept { return live_.load(std::memory_order_relaxed); }
  [[nodiscard]] Bytes peak_bytes() const noexcept {
    return std::max(peak_.load(std::memory_order_relaxed), before_plan_.load(std::memory_order_relaxed));
  }
  // The peak since the ledger began, over all resets.
  [[nodiscard]] Bytes run_peak_bytes() const noexcept {
    const Bytes now = peak_bytes();
    const Bytes before = earlier_peak_.load(std::memory_order_relaxed);
    return now > before ? now : before;
  }
  // The next peak starts at what is live now. An allocation that runs at the same moment may be missed by its own
  // bytes.
  void ResetPeak() noexcept {
    earlier_peak_.store(run_peak_bytes(), std::memory_order_relaxed);
    earlier_plan_peak_.store(plan_peak_bytes(), std::memory_order_relaxed);
    before_plan_.store(0, std::memory_order_relaxed);
    peak_.store(live_bytes(), std::memory_order_relaxed);
  }
  // A plan is taken up now: from here on plan_peak_bytes() counts, over all resets. The other peaks go on.
  void BeginPlan() noexcept {
    before_plan_.store(peak_bytes(), std::memory_order_relaxed);
    peak_.store(live_bytes(), std::memory_order_relaxed);
    earlier_plan_peak_.store(0, std::memory_order_relaxed);
  }
  [[nodiscard]] Bytes plan_peak_bytes() const noexcept {
    return std::max(peak_.load(std::memory_order_relaxed), earlier_plan_peak_.load(std::memory_order_relaxed));
  }

 private:
  static constexpr std::size_t kShards = 16;
  static constexpr std::size_t kStartCapacity = 1024;  // blocks of one shard before its table doubles

  struct Value {
    Bytes bytes = 0;
    StreamHandle stream = 0;
  };
  struct alignas(64) Shard {
    mutable SpinMutex mutex;
    OpenTable<Value> blocks{kStartCapacity};  // guarded by mutex
  };

  static std::uint64_t KeyOf(const void* pointer) noexcept { return reinterpret_cast<std::uint64_t>(pointer); }
  // Blocks are 512 B apart or more: the bits above tell neighbours apart.
  static std::size_t IndexOf(const void* pointer) noexcept { return (KeyOf(pointer) * 0x9e3779b97f4a7c15u) >> 60; }
  static_assert(kShards == 16, "IndexOf keeps four bits");
  [[nodiscard]] Shard& ShardOf(const void* pointer) noexcept { return shards_[IndexOf(pointer)]; }
  [[nodiscard]] const Shard& ShardOf(const void* pointer) const noexcept { return shards_[IndexOf(pointer)]; }

  alignas(64) std::atomic<Bytes> live_{0};
  std::atomic<Bytes> peak_{0};
  std::atomic<Bytes> earlier_peak_{0};
  std::atomic<Bytes> before_plan_{0};  // peak since the last reset, where a plan was taken up after it
  std::atomic<Bytes> earlier_plan_peak_{0};
  std::array<Shard, kShards> shards_;
};

}  // namespace stalloc
