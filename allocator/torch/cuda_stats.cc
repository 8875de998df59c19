#include "allocator/torch/cuda_stats.h"

#include <algorithm>
#include <mutex>

namespace stalloc {
namespace {

using c10::CachingAllocator::StatArray;
using c10::CachingAllocator::StatType;
using DeviceStats = c10::CachingDeviceAllocator::DeviceStats;

constexpr auto kAggregate = static_cast<std::size_t>(StatType::AGGREGATE);
constexpr auto kSmall = static_cast<std::size_t>(StatType::SMALL_POOL);
constexpr auto kLarge = static_cast<std::size_t>(StatType::LARGE_POOL);

std::size_t TypeOf(CombinedStats::Pool pool) { return pool == CombinedStats::Pool::kSmall ? kSmall : kLarge; }

}  // namespace

enum CombinedStats::Figure : std::size_t {
  kAllocations,
  kSegments,
  kActive,
  kAllocatedBytes,
  kReservedBytes,
  kActiveBytes,
  kRequestedBytes,
};

namespace {

// In the order of Figure.
constexpr StatArray DeviceStats::*kMembers[] = {
    &DeviceStats::allocation,      &DeviceStats::segment,        &DeviceStats::active,
    &DeviceStats::allocated_bytes, &DeviceStats::reserved_bytes, &DeviceStats::active_bytes,
    &DeviceStats::requested_bytes,
};

}  // namespace

CombinedStats::Pool CombinedStats::PoolOfSize(Bytes bytes) noexcept {
  constexpr Bytes kLargestSmallBlock = Bytes{1} << 20;
  return bytes <= kLargestSmallBlock ? Pool::kSmall : Pool::kLarge;
}

bool CombinedStats::Allocated(Bytes bytes, Bytes requested, Pool pool) noexcept {
  const std::size_t type = TypeOf(pool);
  const auto rounded = static_cast<std::int64_t>(bytes);
  const std::lock_guard lock(mutex_);
  bool passed = Raise(kAllocations, type, 1);
  passed |= Raise(kActive, type, 1);
  passed |= Raise(kAllocatedBytes, type, rounded);
  passed |= Raise(kActiveBytes, type, rounded);
  passed |= Raise(kRequestedBytes, type, static_cast<std::int64_t>(requested));
  return passed;
}

void CombinedStats::Freed(Bytes bytes, Bytes requested, Pool pool) noexcept {
  const std::size_t type = TypeOf(pool);
  const auto rounded = static_cast<std::int64_t>(bytes);
  const std::lock_guard lock(mutex_);
  Lower(kAllocations, type, 1);
  Lower(kActive, type, 1);
  Lower(kAllocatedBytes, type, rounded);
  Lower(kActiveBytes, type, rounded);
  Lower(kRequestedBytes, type, static_cast<std::int64_t>(requested));
}

bool CombinedStats::NativeAllocated(Bytes bytes, Bytes requested) noexcept {
  const std::lock_guard lock(mutex_);
  ++native_allocations_;
  if (PoolOfSize(bytes) == Pool::kLarge) return true;
  const auto rounded = static_cast<std::int64_t>(bytes);
  bool passed = false;
  const auto add = [&](Figure figure, std::int64_t amount) {
    since_[figure] += amount;
    for (const std::size_t type : {kAggregate, kSmall}) passed |= UpperBound(figure, type) > rows_[figure][type].peak;
  };
  add(kAllocations, 1);
  add(kActive, 1);
  add(kAllocatedBytes, rounded);
  add(kActiveBytes, rounded);
  add(kRequestedBytes, static_cast<std::int64_t>(requested));
  return passed;
}

std::uint64_t CombinedStats::native_allocations() const noexcept {
  const std::lock_guard lock(mutex_);
  return native_allocations_;
}

bool CombinedStats::SetReserved(Bytes bytes) noexcept {
  const std::lock_guard lock(mutex_);
  return Set(kReservedBytes, kLarge, static_cast<std::int64_t>(bytes));
}

void CombinedStats::SetSample(const Sample& sample) noexcept {
  const std::lock_guard lock(mutex_);
  TakeBackFrees(kActive, sample.pending - sample_.pending);
  TakeBackFrees(kActiveBytes, sample.pending_bytes - sample_.pending_bytes);
  TakeBackFrees(kRequestedBytes, sample.pending_requested - sample_.pending_requested);
  sample_ = sample;
}

// Where others came meanwhile the statistics may lack them: they stay in the bound.
void CombinedStats::Refresh(const DeviceStats& native, std::uint64_t before) noexcept {
  const std::lock_guard lock(mutex_);
  RefreshLocked(native);
  if (before == native_allocations_) since_ = {};
}

std::int64_t CombinedStats::UpperBound(Figure figure, std::size_t type) const noexcept {
  const Row& row = rows_[figure][type];
  return row.own + row.native + (type == kLarge ? 0 : since_[figure]);
}

DeviceStats CombinedStats::Combine(const DeviceStats& native) noexcept {
  DeviceStats combined = native;
  const std::lock_guard lock(mutex_);
  RefreshLocked(native);
  for (std::size_t figure = 0; figure < kFigures; ++figure) {
    for (std::size_t type = 0; type < kTypes; ++type) {
      const Row& row = rows_[figure][type];
      c10::CachingAllocator::Stat& stat = (combined.*kMembers[figure])[type];
      stat.current += row.own;
      stat.allocated += row.allocated;
      stat.freed += row.freed;
      stat.peak = row.peak;
    }
  }
  return combined;
}

void CombinedStats::ResetPeaks(const DeviceStats& native) noexcept {
  const std::lock_guard lock(mutex_);
  for (auto& types : rows_) {
    for (Row& row : types) row.peak = 0;
  }
  RefreshLocked(native);
}

void CombinedStats::ResetAccumulated() noexcept {
  const std::lock_guard lock(mutex_);
  for (auto& types : rows_) {
    for (Row& row : types) row.allocated = row.freed = 0;
  }
}

CombinedStats::Totals CombinedStats::Sum() const noexcept {
  const std::lock_guard lock(mutex_);
  const Row& allocated = rows_[kAllocatedBytes][kAggregate];
  const Row& reserved = rows_[kReservedBytes][kAggregate];
  return {allocated.own + allocated.native, reserved.own + reserved.native};
}

bool CombinedStats::Raise(Figure figure, std::size_t pool, std::int64_t amount) noexcept {
  bool passed = false;
  for (const std::size_t type : {kAggregate, pool}) {
    Row& row = rows_[figure][type];
    row.own += amount;
    row.allocated += amount;
    passed |= UpperBound(figure, type) > row.peak;
  }
  return passed;
}

void CombinedStats::Lower(Figure figure, std::size_t pool, std::int64_t amount) noexcept {
  for (const std::size_t type : {kAggregate, pool}) {
    Row& row = rows_[figure][type];
    row.own -= amount;
    row.freed += amount;
  }
}

void CombinedStats::TakeBackFrees(Figure figure, std::int64_t amount) noexcept { Lower(figure, kLarge, -amount); }

bool CombinedStats::Set(Figure figure, std::size_t pool, std::int64_t value) noexcept {
  const std::int64_t change = value - rows_[figure][pool].own;
  if (change > 0) return Raise(figure, pool, change);
  Lower(figure, pool, -change);
  return false;
}

void CombinedStats::RefreshLocked(const DeviceStats& native) noexcept {
  for (std::size_t figure = 0; figure < kFigures; ++figure) {
    const StatArray& stats = native.*kMembers[figure];
    for (std::size_t type = 0; type < kTypes; ++type) {
      Row& row = rows_[figure][type];
      row.native = stats[type].current;
      // The native peak alone is a lower bound of the sum's: it catches native allocations of other threads in between.
      row.peak = std::max({row.peak, row.own + row.native, stats[type].peak});
    }
  }
}

}  // namespace stalloc
