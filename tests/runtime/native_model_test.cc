// NativeModel by addresses against NativeSegments by blocks, and what feeds it.
#include "allocator/runtime/native_model.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <thread>
#include <vector>

#include "allocator/runtime/native_feed.h"
#include "allocator/runtime/native_held.h"
#include "proto/model/native_segments.h"

namespace stalloc {
namespace native_model {

const void* At(std::uint64_t address) { return reinterpret_cast<const void*>(address); }

TEST(NativeModelTest, FollowsItsSegmentsOverRandomRuns) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    NativeModel model;
    NativeSegments segments;
    struct Live {
      NativeSegments::BlockId id;
      std::uint64_t address;
    };
    std::vector<Live> live;
    for (std::uint64_t step = 1; step <= 3000; ++step) {
      if (!live.empty() && random() % 100 < 48) {
        std::swap(live[random() % live.size()], live.back());
        model.Free(live.back().address);
        segments.Free(live.back().id);
        live.pop_back();
      } else {
        const Bytes bytes = BlockBytes(1 + random() % (random() % 3 == 0 ? 30 * kMiB : 2 * kMiB));
        const auto stream = static_cast<std::uint32_t>(random() % 3);
        model.Allocate(step, bytes, stream);
        live.push_back({segments.Allocate(bytes, {stream, bytes <= kMiB, false}), step});
      }
      ASSERT_EQ(model.held_bytes(), segments.held_bytes()) << step;
    }
  }
}

TEST(NativeModelTest, AnEmptiedCacheKeepsSegmentsInWhichABlockLives) {
  NativeModel model;
  model.Allocate(1, 30 * kMiB, 0);
  model.Allocate(2, 12 * kMiB, 0);
  model.Allocate(3, 3 * kMiB, 0);
  model.Allocate(4, 3 * kMiB, 0);  // of the same segment
  for (const std::uint64_t address : {1, 3}) model.Free(address);
  EXPECT_EQ(model.held_bytes(), 62 * kMiB);
  model.EmptyCache();
  EXPECT_EQ(model.held_bytes(), 32 * kMiB);
  EXPECT_EQ(model.TakePeak(), 62 * kMiB);
  EXPECT_EQ(model.TakePeak(), 32 * kMiB);
  model.Allocate(5, 3 * kMiB, 0);
  EXPECT_EQ(model.held_bytes(), 32 * kMiB);
  model.Allocate(6, 30 * kMiB, 0);
  EXPECT_EQ(model.TakePeak(), 62 * kMiB);
}

TEST(NativeModelTest, AnAddressThatIsGivenOutAgainWasFreed) {
  NativeModel model;
  for (int i = 0; i < 100; ++i) model.Allocate(1, 30 * kMiB, 0);
  model.Free(2);
  EXPECT_EQ(model.held_bytes(), 30 * kMiB);
}

TEST(NativeModelTest, TooManyBlocksEndIt) {
  NativeModel model;
  for (std::uint64_t i = 0; i < NativeModel::kMostBlocks; ++i) model.Allocate(i, 512, 0);
  EXPECT_FALSE(model.overflowed());
  model.Allocate(NativeModel::kMostBlocks, 512, 0);
  EXPECT_TRUE(model.overflowed());
}

std::vector<NativeFeed::LiveBlock> Nothing() { return {}; }

TEST(NativeFeedTest, PlaysWhatItIsToldInOrderAndNothingWhileClosed) {
  NativeFeed feed;
  feed.Allocated(At(512), 30 * kMiB, 0);
  EXPECT_FALSE(feed.Play().known);
  feed.Open(&Nothing);
  for (int i = 0; i < 20000; ++i) {  // more than it collects
    feed.Allocated(At(512), 30 * kMiB, 0);
    feed.Freed(At(512));
  }
  NativeFeed::Figures figures = feed.Play();
  EXPECT_TRUE(figures.known);
  EXPECT_EQ(figures.peak, 30 * kMiB);
  feed.EmptiedCache();
  EXPECT_EQ(feed.Play().peak, 30 * kMiB);
  EXPECT_EQ(feed.Play().peak, 0u);
  feed.Close();
  EXPECT_FALSE(feed.Play().known);
}

TEST(NativeFeedTest, BeginsWithWhatLives) {
  NativeFeed feed;
  feed.Open([] { return std::vector<NativeFeed::LiveBlock>{{512, 12 * kMiB, 0}, {1024, 40 * kMiB, 7}}; });
  EXPECT_EQ(feed.Play().peak, 52 * kMiB);
  feed.Freed(At(1024));
  feed.Allocated(At(2048), 40 * kMiB, 7);
  EXPECT_EQ(feed.Play().peak, 52 * kMiB);
  feed.Allocated(At(4096), 40 * kMiB, 8);
  EXPECT_EQ(feed.Play().peak, 92 * kMiB);
}

// No block is lost, and none is freed before it came: the threads hand blocks to each other.
TEST(NativeFeedTest, ManyThreadsTellItWhileItOpensAndCloses) {
  constexpr int kThreads = 4;
  NativeFeed feed;
  feed.Open(&Nothing);
  std::atomic<bool> goes_on{true};
  std::vector<std::thread> threads;
  for (std::uint64_t thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      for (std::uint64_t i = 1; goes_on; ++i) {
        const void* const block = At((thread << 40) + 512 * (1 + i % 64));
        feed.Allocated(block, 12 * kMiB, 0);
        feed.Freed(block);
      }
    });
  }
  for (int i = 0; i < 200; ++i) {
    EXPECT_LE(feed.Play().peak, kThreads * 12 * kMiB);
    if (i % 10 != 9) continue;
    feed.Close();
    feed.Open(&Nothing);
  }
  goes_on = false;
  for (std::thread& thread : threads) thread.join();
}

// So many iterations, each with a block of so many bytes.
void Pass(NativeHeld& native, int iterations, Bytes bytes, bool fits, Bytes held) {
  for (int i = 0; i < iterations; ++i) {
    native.feed().Allocated(At(512), bytes, 0);
    native.feed().Freed(At(512));
    (void)native.Play(bytes, bytes, 0);
    if (native.Decide(fits, held)) native.feed().Open(&Nothing);
  }
}

TEST(NativeHeldTest, IsClosedOnceThePlanHasProvenGood) {
  NativeHeld native;
  native.feed().Open(&Nothing);
  Pass(native, 5, 29 * kMiB, /*fits=*/false, 90 * kMiB);
  Pass(native, 11, 29 * kMiB, /*fits=*/true, 30 * kMiB);
  EXPECT_TRUE(native.feed().open());
  Pass(native, 1, 29 * kMiB, /*fits=*/true, 30 * kMiB);
  EXPECT_FALSE(native.feed().open());
  EXPECT_EQ(native.known().held, 30 * kMiB);
  EXPECT_EQ(native.known().live, 29 * kMiB);
}

TEST(NativeHeldTest, IsOpenedWhereMoreIsHeldThanThenLessAndLessOften) {
  NativeHeld native;
  native.feed().Open(&Nothing);
  Pass(native, 12, 29 * kMiB, true, 30 * kMiB);
  Pass(native, 100, 29 * kMiB, false, 30 * kMiB);
  EXPECT_FALSE(native.feed().open()) << "no more is held than then";
  int opened = 0;
  for (int i = 0; i < 20000; ++i) {
    const bool was_open = native.feed().open();
    Pass(native, 1, 40 * kMiB, false, (60 + static_cast<Bytes>(i)) * kMiB);
    opened += !was_open && native.feed().open() ? 1 : 0;
  }
  EXPECT_GE(opened, 5);
  EXPECT_LE(opened, 16);
  EXPECT_EQ(native.known().held, 40 * kMiB);
}

TEST(NativeHeldTest, IsClosedAfterAWhileWhateverIsHeld) {
  NativeHeld native;
  native.feed().Open(&Nothing);
  Pass(native, 64, 29 * kMiB, false, 90 * kMiB);
  EXPECT_FALSE(native.feed().open());
}

TEST(NativeHeldTest, WhatItHeldIsHeldForLaterAndAsMuchMoreAsLivesMore) {
  NativeHeld native;
  EXPECT_EQ(native.Play(kMiB, kMiB, 0), 0u);
  native.feed().Open(&Nothing);
  Pass(native, 12, 20 * kMiB, true, 20 * kMiB);
  ASSERT_FALSE(native.feed().open());
  EXPECT_EQ(native.Play(kMiB, 20 * kMiB, 0), 20 * kMiB);
  EXPECT_EQ(native.Play(30 * kMiB, 30 * kMiB, 0), 30 * kMiB);
  native.EmptiedCache(0);
  EXPECT_EQ(native.Play(30 * kMiB, 30 * kMiB, 0), 0u) << "nobody knows what went back";
}

// Caches are emptied before a graph's pool is filled.
TEST(NativeHeldTest, WhatWasHeldBeforeAGraphsPoolIsNotHeldBesideIt) {
  NativeHeld native;
  native.feed().Open(&Nothing);
  const auto run = [&native](Bytes bytes) {
    native.feed().Allocated(At(512), bytes, 0);
    native.feed().Freed(At(512));
  };
  run(60 * kMiB);
  native.EmptiedCache(0);
  run(20 * kMiB);
  EXPECT_EQ(native.Play(60 * kMiB, 60 * kMiB, 50 * kMiB), 60 * kMiB);
  EXPECT_EQ(native.known().with_apart, 70 * kMiB) << "20 MiB beside the pool of 50";
  native.EmptiedCache(50 * kMiB);
  EXPECT_EQ(native.Play(0, 60 * kMiB, 60 * kMiB), 20 * kMiB);
  EXPECT_EQ(native.known().with_apart, 70 * kMiB);
  run(30 * kMiB);
  (void)native.Play(30 * kMiB, 60 * kMiB, 60 * kMiB);
  EXPECT_EQ(native.known().with_apart, 90 * kMiB);
  EXPECT_EQ(native.known().held, 60 * kMiB);
}

// An evaluation, say: what it needed stays in the cache for all iterations that follow.
TEST(NativeHeldTest, WhatALargerIterationNeededAfterAnEmptiedCacheIsHeldOn) {
  NativeHeld native;
  native.EmptiedCache(0);
  EXPECT_EQ(native.Play(90 * kMiB, 90 * kMiB, 0), 0u);
  (void)native.Play(50 * kMiB, 90 * kMiB, 0);  // larger than those below
  native.feed().Open(&Nothing);
  const auto iterate = [&native](Bytes bytes) {
    native.feed().Allocated(At(512), bytes, 0);
    native.feed().Freed(At(512));
    return native.Play(bytes, 90 * kMiB, 0);
  };
  EXPECT_EQ(iterate(20 * kMiB), 50 * kMiB);
  EXPECT_EQ(iterate(60 * kMiB), 80 * kMiB) << "a segment for each";
  EXPECT_EQ(iterate(20 * kMiB), 80 * kMiB);
  native.EmptiedCache(0);
  EXPECT_EQ(iterate(20 * kMiB), 80 * kMiB) << "held until then";
  EXPECT_EQ(iterate(20 * kMiB), 20 * kMiB);
}

}  // namespace native_model
}  // namespace stalloc
