// CombinedStats against a model that looks at both parts after every single step.
#include "allocator/torch/cuda_stats.h"

#include <c10/core/AllocatorConfig.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace stalloc {
namespace {

using c10::CachingAllocator::Stat;
using c10::CachingAllocator::StatArray;
using c10::CachingAllocator::StatType;
using DeviceStats = CombinedStats::DeviceStats;

constexpr auto kAll = static_cast<std::size_t>(StatType::AGGREGATE);
constexpr auto kSmall = static_cast<std::size_t>(StatType::SMALL_POOL);
constexpr auto kLarge = static_cast<std::size_t>(StatType::LARGE_POOL);

std::size_t PoolOf(Bytes bytes) { return bytes <= (Bytes{1} << 20) ? kSmall : kLarge; }
constexpr auto kOfLarge = CombinedStats::Pool::kLarge;

// The figures of an allocator that rounds to 512 bytes and reserves in 2 MiB.
class FakeNative {
 public:
  void Allocate(Bytes requested) {
    const Bytes bytes = BlockBytes(requested);
    for (const std::size_t type : {kAll, PoolOf(bytes)}) {
      stats.allocation[type].increase(1);
      stats.active[type].increase(1);
      stats.allocated_bytes[type].increase(bytes);
      stats.active_bytes[type].increase(bytes);
      stats.requested_bytes[type].increase(requested);
    }
    while (stats.reserved_bytes[kAll].current < stats.allocated_bytes[kAll].current) {
      stats.reserved_bytes[kAll].increase(2 << 20);
      stats.reserved_bytes[kLarge].increase(2 << 20);
      stats.segment[kAll].increase(1);
      stats.segment[kLarge].increase(1);
    }
  }
  void Free(Bytes requested) {
    const Bytes bytes = BlockBytes(requested);
    for (const std::size_t type : {kAll, PoolOf(bytes)}) {
      stats.allocation[type].decrease(1);
      stats.active[type].decrease(1);
      stats.allocated_bytes[type].decrease(bytes);
      stats.active_bytes[type].decrease(bytes);
      stats.requested_bytes[type].decrease(requested);
    }
  }
  void ResetPeaks() {
    for (StatArray DeviceStats::*member : {&DeviceStats::allocation, &DeviceStats::allocated_bytes,
                                           &DeviceStats::requested_bytes, &DeviceStats::reserved_bytes}) {
      for (Stat& stat : stats.*member) stat.reset_peak();
    }
    for (Stat& stat : stats.active) stat.reset_peak();
    for (Stat& stat : stats.active_bytes) stat.reset_peak();
    for (Stat& stat : stats.segment) stat.reset_peak();
  }
  DeviceStats stats;
};

void Refresh(CombinedStats& combined, const FakeNative& native) {
  combined.Refresh(native.stats, combined.native_allocations());
}

void ExpectStat(const Stat& actual, const Stat& expected, const char* name) {
  EXPECT_EQ(actual.current, expected.current) << name;
  EXPECT_EQ(actual.peak, expected.peak) << name;
  EXPECT_EQ(actual.allocated, expected.allocated) << name;
  EXPECT_EQ(actual.freed, expected.freed) << name;
}

void ExpectEqual(const DeviceStats& actual, const DeviceStats& expected) {
  for (const std::size_t type : {kAll, kSmall, kLarge}) {
    SCOPED_TRACE(type);
    ExpectStat(actual.allocation[type], expected.allocation[type], "allocation");
    ExpectStat(actual.active[type], expected.active[type], "active");
    ExpectStat(actual.allocated_bytes[type], expected.allocated_bytes[type], "allocated_bytes");
    ExpectStat(actual.active_bytes[type], expected.active_bytes[type], "active_bytes");
    ExpectStat(actual.requested_bytes[type], expected.requested_bytes[type], "requested_bytes");
  }
}

struct Live {
  Bytes requested;
  bool native;
};

// One allocator that had served every request itself would show `model`; the two halves together must show the same.
TEST(CombinedStatsTest, ShowsWhatOneAllocatorForAllRequestsWouldShow) {
  for (unsigned seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    FakeNative native;
    FakeNative model;
    CombinedStats combined;
    std::vector<Live> live;
    for (int step = 0; step < 2000; ++step) {
      const unsigned choice = random() % 100;
      if (choice < 45 || live.empty()) {
        const Bytes requested = 1 + random() % (choice % 2 == 0 ? 4096 : 4u << 20);
        const bool to_native = random() % 3 == 0;
        live.push_back({requested, to_native});
        model.Allocate(requested);
        if (to_native) {
          native.Allocate(requested);
          if (combined.NativeAllocated(BlockBytes(requested), requested)) Refresh(combined, native);
        } else if (combined.Allocated(BlockBytes(requested), requested, CombinedStats::PoolOfSize(requested))) {
          Refresh(combined, native);
        }
      } else if (choice < 98) {
        std::swap(live[random() % live.size()], live.back());
        const Live freed = live.back();
        live.pop_back();
        model.Free(freed.requested);
        if (freed.native) {
          native.Free(freed.requested);
        } else {
          combined.Freed(BlockBytes(freed.requested), freed.requested, CombinedStats::PoolOfSize(freed.requested));
        }
      } else {
        native.ResetPeaks();
        model.ResetPeaks();
        combined.ResetPeaks(native.stats);
      }
      if (step % 50 == 0) ExpectEqual(combined.Combine(native.stats), model.stats);
    }
    ExpectEqual(combined.Combine(native.stats), model.stats);
    if (HasFailure()) return;
  }
}

TEST(CombinedStatsTest, KeepsThePeakOfTheSumNotTheSumOfThePeaks) {
  FakeNative native;
  CombinedStats combined;
  native.Allocate(8 << 20);
  Refresh(combined, native);
  native.Free(8 << 20);
  EXPECT_TRUE(combined.Allocated(6 << 20, 6 << 20, kOfLarge)) << "8 MiB as last seen and 6 MiB would be a new peak";
  Refresh(combined, native);
  const DeviceStats stats = combined.Combine(native.stats);
  EXPECT_EQ(stats.allocated_bytes[kAll].peak, 8 << 20);
  EXPECT_EQ(stats.allocated_bytes[kAll].current, 6 << 20);
}

TEST(CombinedStatsTest, AsksForTheNativePartOnlyWhenAPeakMayBePassed) {
  FakeNative native;
  CombinedStats combined;
  native.Allocate(1 << 20);
  Refresh(combined, native);
  ASSERT_TRUE(combined.Allocated(4 << 20, 4 << 20, kOfLarge));
  Refresh(combined, native);
  for (int repeat = 0; repeat < 10; ++repeat) {
    combined.Freed(4 << 20, 4 << 20, kOfLarge);
    EXPECT_FALSE(combined.Allocated(4 << 20, 4 << 20, kOfLarge)) << "the same peak again is no new one";
  }
}

TEST(CombinedStatsTest, SmallNativeBlocksBelowThePeakAreNoReasonToAsk) {
  FakeNative native;
  CombinedStats combined;
  const auto allocate = [&](Bytes bytes) {
    native.Allocate(bytes);
    return combined.NativeAllocated(bytes, bytes);
  };
  ASSERT_TRUE(allocate(64 << 10)) << "a peak";
  ASSERT_TRUE(allocate(64 << 10));
  Refresh(combined, native);
  native.Free(64 << 10);
  native.Free(64 << 10);
  Refresh(combined, native);
  EXPECT_FALSE(allocate(64 << 10));
  EXPECT_FALSE(allocate(64 << 10)) << "as many as then";
  native.Free(64 << 10);
  EXPECT_TRUE(allocate(64 << 10)) << "frees are not seen";
  EXPECT_TRUE(allocate(4 << 20)) << "a large one";
}

// Another thread's block that the statistics lack stays in the bound.
TEST(CombinedStatsTest, ABlockThatCameWhileFiguresWereReadIsNotForgotten) {
  FakeNative native;
  CombinedStats combined;
  (void)combined.Allocated(8 << 20, 8 << 20, kOfLarge);
  Refresh(combined, native);
  combined.Freed(8 << 20, 8 << 20, kOfLarge);
  const std::uint64_t before = combined.native_allocations();
  const DeviceStats read = native.stats;
  native.Allocate(512 << 10);
  (void)combined.NativeAllocated(512 << 10, 512 << 10);
  combined.Refresh(read, before);
  EXPECT_TRUE(combined.Allocated(8 << 20, 8 << 20, kOfLarge)) << "8.5 MiB are a new peak";
}

TEST(CombinedStatsTest, ReservesInTheLargePool) {
  FakeNative native;
  native.Allocate(1 << 20);
  CombinedStats combined;
  EXPECT_TRUE(combined.SetReserved(Bytes{64} << 20));
  const DeviceStats stats = combined.Combine(native.stats);
  EXPECT_EQ(stats.reserved_bytes[kAll].current, (64 << 20) + (2 << 20));
  EXPECT_EQ(stats.reserved_bytes[kLarge].current, (64 << 20) + (2 << 20));
  EXPECT_EQ(stats.reserved_bytes[kSmall].current, 0);
  EXPECT_EQ(stats.segment[kAll].current, 1);
  EXPECT_FALSE(combined.SetReserved(0));
  EXPECT_EQ(combined.Combine(native.stats).reserved_bytes[kAll].current, 2 << 20);
  EXPECT_EQ(combined.Combine(native.stats).reserved_bytes[kAll].peak, (64 << 20) + (2 << 20));
}

TEST(CombinedStatsTest, CountsBlocksThatWaitForAStreamAsActiveOnly) {
  FakeNative native;
  CombinedStats combined;
  (void)combined.Allocated(2 << 20, 2 << 20, kOfLarge);
  combined.Freed(2 << 20, 2 << 20, kOfLarge);
  combined.SetSample({.pending = 1, .pending_bytes = 2 << 20, .pending_requested = (2 << 20) - 100});
  DeviceStats stats = combined.Combine(native.stats);
  EXPECT_EQ(stats.allocated_bytes[kAll].current, 0);
  EXPECT_EQ(stats.active_bytes[kAll].current, 2 << 20);
  EXPECT_EQ(stats.active[kAll].current, 1);
  EXPECT_EQ(stats.active[kAll].allocated, 1) << "a block that waits was not allocated again";
  EXPECT_EQ(stats.active[kAll].freed, 0);
  EXPECT_EQ(stats.requested_bytes[kAll].current, (2 << 20) - 100) << "until it is no longer active, as torch's own";
  combined.SetSample({});
  stats = combined.Combine(native.stats);
  EXPECT_EQ(stats.active_bytes[kAll].current, 0);
  EXPECT_EQ(stats.active_bytes[kAll].freed, 2 << 20);
  EXPECT_EQ(stats.requested_bytes[kAll].current, 0);
}

TEST(CombinedStatsTest, CountsASmallBlockInTheSegmentThatItLiesIn) {
  FakeNative native;
  CombinedStats combined;
  (void)combined.Allocated(512, 100, kOfLarge);
  DeviceStats stats = combined.Combine(native.stats);
  EXPECT_EQ(stats.allocated_bytes[kLarge].current, 512);
  EXPECT_EQ(stats.allocation[kSmall].current, 0);
  combined.Freed(512, 100, kOfLarge);
  stats = combined.Combine(native.stats);
  EXPECT_EQ(stats.allocated_bytes[kLarge].current, 0);
  EXPECT_EQ(stats.requested_bytes[kLarge].current, 0);
}

TEST(CombinedStatsTest, ResetsAccumulatedCountsAndLeavesCurrentOnes) {
  FakeNative native;
  CombinedStats combined;
  (void)combined.Allocated(1024, 1000, CombinedStats::Pool::kSmall);
  combined.ResetAccumulated();
  const DeviceStats stats = combined.Combine(native.stats);
  EXPECT_EQ(stats.requested_bytes[kSmall].allocated, 0);
  EXPECT_EQ(stats.requested_bytes[kSmall].current, 1000);
  EXPECT_EQ(stats.allocated_bytes[kAll].current, 1024);
}

}  // namespace
}  // namespace stalloc
