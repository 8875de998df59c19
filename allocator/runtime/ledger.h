// Ledger: bytes live on one device, wherever they came from, and the peaks of their sum: of the run, and of parts of
// it.
//
// Blocks of the arena are only summed (their owners know them by address); blocks of upstream are kept by address,
// since nothing else gives their size at the free. Every block counts BlockBytes(requested), as PyTorch rounds it.
// Thread-safe; no heap memory, no system call except when a table doubles. Not for a forked child: a shard may be
// locked there for ever.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <span>

#include "allocator/base/mutex.h"
#include "allocator/base/open_table.h"
#include "allocator/base/spin_mutex.h"
#include "allocator/runtime/span.h"
#include "proto/model/units.h"

namespace stalloc {

class Ledger {
 public:
  // A block of the arena. `bytes` are rounded.
  void Add(Bytes bytes) noexcept {
    const Bytes live = live_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    Bytes peak = peak_.load(std::memory_order_relaxed);
    while (live > peak && !peak_.compare_exchange_weak(peak, live, std::memory_order_relaxed)) {
    }
  }
  void Remove(Bytes bytes) noexcept { live_.fetch_sub(bytes, std::memory_order_relaxed); }

  // A block of upstream. `apart`: of a graph's pool, or another that is kept apart. REQUIRES: `pointer` is not in the
  // ledger.
  void AddUpstream(const void* pointer, Bytes bytes, StreamHandle stream = 0, bool apart = false) noexcept {
    Shard& shard = ShardOf(pointer);
    {
      const LockGuard lock(shard.mutex);
      shard.blocks.Insert(KeyOf(pointer), {bytes | Bytes{apart}, stream});
    }
    if (apart) AddApart(bytes);
    Add(bytes);
  }
  // Its rounded bytes; 0 when it is not in the ledger.
  Bytes RemoveUpstream(const void* pointer) noexcept {
    Shard& shard = ShardOf(pointer);
    Value removed;
    {
      const LockGuard lock(shard.mutex);
      removed = shard.blocks.Erase(KeyOf(pointer)).value_or(Value{});
    }
    if (removed.apart()) apart_.fetch_sub(removed.bytes(), std::memory_order_relaxed);
    Remove(removed.bytes());
    return removed.bytes();
  }
  [[nodiscard]] Bytes FindUpstream(const void* pointer) const noexcept {
    const Shard& shard = ShardOf(pointer);
    const LockGuard lock(shard.mutex);
    const Value* value = shard.blocks.Find(KeyOf(pointer));
    return value == nullptr ? 0 : value->bytes();
  }

  struct UpstreamBlock {
    std::uint64_t address = 0;
    Bytes bytes = 0;  // rounded
    StreamHandle stream = 0;
    bool apart = false;
  };
  // Copies what fits of upstream's live blocks into `blocks`, in no particular order; returns how many there are. Takes
  // no heap memory; what begins or ends meanwhile may be missing.
  [[nodiscard]] std::size_t CopyUpstreamBlocks(std::span<UpstreamBlock> blocks) const noexcept {
    std::size_t count = 0;
    for (const Shard& shard : shards_) {
      const LockGuard lock(shard.mutex);
      shard.blocks.ForEach([&](std::uint64_t key, const Value& value) {
        if (count < blocks.size()) blocks[count] = {key, value.bytes(), value.stream, value.apart()};
        ++count;
      });
    }
    return count;
  }

  [[nodiscard]] Bytes live_bytes() const noexcept { return live_.load(std::memory_order_relaxed); }
  // Of that, kept apart.
  [[nodiscard]] Bytes apart_bytes() const noexcept { return apart_.load(std::memory_order_relaxed); }
  // Some of it was, at any time.
  [[nodiscard]] bool has_apart() const noexcept { return has_apart_.load(std::memory_order_relaxed); }
  // Since Begin(span) was last called; of kRun since the ledger began.
  [[nodiscard]] Bytes PeakBytes(Span span) const noexcept {
    return std::max(peak_.load(std::memory_order_relaxed), Before(span).load(std::memory_order_relaxed));
  }
  // The next peak of this span starts at what is live now; the others go on. An allocation that runs at the same moment
  // may be missed by its own bytes. Calls of one thread at a time.
  void Begin(Span span) noexcept {
    AddToAll(peak_.load(std::memory_order_relaxed));
    AddToAll(peak_.exchange(live_bytes(), std::memory_order_relaxed));
    Before(span).store(0, std::memory_order_relaxed);
  }

 private:
  static constexpr std::size_t kShards = 16;
  static constexpr std::size_t kStartCapacity = 1024;  // blocks of one shard before its table doubles

  struct Value {
    Bytes word = 0;  // bytes, which are even, and whether it is kept apart
    StreamHandle stream = 0;
    [[nodiscard]] Bytes bytes() const noexcept { return word & ~Bytes{1}; }
    [[nodiscard]] bool apart() const noexcept { return (word & 1) != 0; }
  };
  struct alignas(64) Shard {
    mutable SpinMutex mutex;
    OpenTable<Value> blocks STALLOC_GUARDED_BY(mutex){kStartCapacity};  // guarded by mutex
  };

  static std::uint64_t KeyOf(const void* pointer) noexcept { return reinterpret_cast<std::uint64_t>(pointer); }
  // Blocks are 512 B apart or more: the bits above distinguish neighbours.
  static std::size_t IndexOf(const void* pointer) noexcept { return (KeyOf(pointer) * 0x9e3779b97f4a7c15u) >> 60; }
  static_assert(kShards == 16, "IndexOf keeps four bits");
  [[nodiscard]] Shard& ShardOf(const void* pointer) noexcept { return shards_[IndexOf(pointer)]; }
  [[nodiscard]] const Shard& ShardOf(const void* pointer) const noexcept { return shards_[IndexOf(pointer)]; }

  void AddApart(Bytes bytes) noexcept {
    apart_.fetch_add(bytes, std::memory_order_relaxed);
    has_apart_.store(true, std::memory_order_relaxed);
  }
  // For a span, before the last call of Begin.
  [[nodiscard]] std::atomic<Bytes>& Before(Span span) noexcept { return before_[static_cast<std::size_t>(span)]; }
  [[nodiscard]] const std::atomic<Bytes>& Before(Span span) const noexcept {
    return before_[static_cast<std::size_t>(span)];
  }
  void AddToAll(Bytes peak) noexcept {
    for (std::atomic<Bytes>& before : before_) {
      if (peak > before.load(std::memory_order_relaxed)) before.store(peak, std::memory_order_relaxed);
    }
  }

  alignas(64) std::atomic<Bytes> live_{0};
  std::atomic<Bytes> peak_{0};  // since the last call of Begin, of any span
  std::array<std::atomic<Bytes>, static_cast<std::size_t>(Span::kCount)> before_{};
  std::atomic<Bytes> apart_{0};
  std::atomic<bool> has_apart_{false};
  std::array<Shard, kShards> shards_;
};

}  // namespace stalloc
