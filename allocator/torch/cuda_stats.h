// CombinedStats: what torch.cuda.memory_stats() shows when blocks live both in our memory and in the native allocator.
//
// Current values add up. Peaks do not: the two parts peak at different times, so the peak of the sum is kept here. Our
// part is followed block by block; the native part is looked at when it can matter: after each large native block, and
// when the sum of our part, the native part as last seen and its small blocks since would be a new peak. Native frees
// only lower it, so that this sum is an upper bound, and a steady iteration queries the native allocator almost never.
// Two threads that allocate, or free and allocate, at the very same time may let a peak be too high by one of their
// blocks, never too low.
//
// What the native allocator reserves for small blocks shows when it is looked at next: before what is reserved here
// shrinks, before a cache is emptied, and when figures are read.
//
// The arena is counted as the native allocator counts its expandable segments: reserved bytes of the large pool, no
// segment and nothing of inactive_split. Its blocks are in the pool that they would be in natively: programs compare
// their small blocks' figures around what they do. Blocks that wait for another stream are sampled when statistics are
// read, all as large ones. Bytes. Thread-safe; no heap memory, no calls out.
#pragma once

#include <c10/core/CachingDeviceAllocator.h>

#include <array>
#include <cstdint>

#include "allocator/base/spin_mutex.h"
#include "proto/model/units.h"

namespace stalloc {

class CombinedStats {
 public:
  using DeviceStats = c10::CachingDeviceAllocator::DeviceStats;

  enum class Pool : std::uint8_t { kSmall, kLarge };
  // For a block: as the native allocator's, up to 1 MiB is small.
  [[nodiscard]] static Pool PoolOfSize(Bytes bytes) noexcept;

  // What is looked at only when statistics are read: blocks that are freed but still fenced by another stream. They are
  // active and not allocated.
  struct Sample {
    std::int64_t pending = 0;
    std::int64_t pending_bytes = 0;
    std::int64_t pending_requested = 0;
  };
  struct Totals {
    std::int64_t allocated = 0;
    std::int64_t reserved = 0;
  };

  // A block of ours begins or ends. `bytes`: rounded. True: a peak may have been passed, call Refresh.
  [[nodiscard]] bool Allocated(Bytes bytes, Bytes requested, Pool pool) noexcept;
  void Freed(Bytes bytes, Bytes requested, Pool pool) noexcept;
  // The native allocator has given a block out. True: call Refresh.
  [[nodiscard]] bool NativeAllocated(Bytes bytes, Bytes requested) noexcept;
  // Before the native statistics are read that Refresh gets.
  [[nodiscard]] std::uint64_t native_allocations() const noexcept;
  // What our memory holds on the device now, which has no segments. True: call Refresh.
  [[nodiscard]] bool SetReserved(Bytes bytes) noexcept;
  void SetSample(const Sample& sample) noexcept;

  // `before`: native_allocations() before `native` was read.
  void Refresh(const DeviceStats& native, std::uint64_t before) noexcept;
  // Refresh, then both parts together. What only the native allocator has (retries, OOMs...) is its own.
  [[nodiscard]] DeviceStats Combine(const DeviceStats& native) noexcept;
  // `native`: after its own peaks were reset.
  void ResetPeaks(const DeviceStats& native) noexcept;
  void ResetAccumulated() noexcept;

  // Both parts, the native one as last seen.
  [[nodiscard]] Totals Sum() const noexcept;

 private:
  static constexpr std::size_t kFigures = 7;
  static constexpr std::size_t kTypes = static_cast<std::size_t>(c10::CachingAllocator::StatType::NUM_TYPES);
  enum Figure : std::size_t;

  struct Row {
    std::int64_t own = 0;
    std::int64_t allocated = 0;  // ours, accumulated
    std::int64_t freed = 0;
    std::int64_t native = 0;  // as last seen
    std::int64_t peak = 0;    // of the sum
  };

  // Each changes one figure of ours, in its pool and in the aggregate. The first two return true where a peak may be
  // passed.
  bool Raise(Figure figure, std::size_t pool, std::int64_t amount) noexcept;
  bool Set(Figure figure, std::size_t pool, std::int64_t value) noexcept;
  void Lower(Figure figure, std::size_t pool, std::int64_t amount) noexcept;
  // Blocks that the program has freed are not done yet, or (less than 0) are now. Nothing was allocated by that.
  void TakeBackFrees(Figure figure, std::int64_t amount) noexcept;
  void RefreshLocked(const DeviceStats& native) noexcept;

  // The most that the figure may be, of all blocks or of a pool's.
  [[nodiscard]] std::int64_t UpperBound(Figure figure, std::size_t type) const noexcept;

  mutable SpinMutex mutex_;
  std::array<std::array<Row, kTypes>, kFigures> rows_{};
  std::array<std::int64_t, kFigures> since_{};  // of small native blocks, since the native part was last seen
  std::uint64_t native_allocations_ = 0;
  Sample sample_;
};

}  // namespace stalloc
