#include "allocator/torch/cuda_mem_pools.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace stalloc {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

constexpr MemPools::Id kPool{0, 7};
constexpr MemPools::Id kOther{0, 8};

void* At(std::uintptr_t address) { return reinterpret_cast<void*>(address); }

MemPools::Block BlockAt(std::uintptr_t address, c10::DeviceIndex device = 0) { return {{At(address), 700, 3}, device}; }

std::vector<void*> AddressesOf(const std::vector<MemPools::Block>& blocks) {
  std::vector<void*> addresses;
  for (const MemPools::Block& block : blocks) addresses.push_back(block.known.pointer);
  return addresses;
}

TEST(MemPoolsTest, PlansThePoolsOfPrograms) {
  MemPools pools;
  EXPECT_FALSE(pools.Plans(0, kPool)) << "nobody made it: a graph's";
  EXPECT_FALSE(pools.Knows(0, kPool));
  pools.Made(0, kPool, true);
  pools.Made(0, kOther, false);
  EXPECT_TRUE(pools.Plans(0, kPool));
  EXPECT_FALSE(pools.Plans(1, kPool)) << "made on another device";
  EXPECT_FALSE(pools.Plans(0, kOther)) << "it has an allocator of its own";
  EXPECT_TRUE(pools.Knows(0, kOther));
}

TEST(MemPoolsTest, WhatWasLeftToTheNativeAllocatorStaysThere) {
  MemPools pools;
  pools.Made(0, kPool, true);
  pools.LeaveToNative(0, kPool);
  EXPECT_FALSE(pools.Plans(0, kPool));
  pools.Made(0, kPool, true);  // one more uses it
  pools.Entered(0, kPool);
  EXPECT_FALSE(pools.Plans(0, kPool));
}

TEST(MemPoolsTest, APoolLivesAsLongAsSomebodyUsesIt) {
  MemPools pools;
  pools.Made(0, kPool, true);
  pools.Entered(0, kPool);
  EXPECT_THAT(pools.Left(0, kPool), IsEmpty());
  EXPECT_TRUE(pools.Plans(0, kPool));
  EXPECT_THAT(pools.Left(0, kPool), IsEmpty());
  EXPECT_FALSE(pools.Plans(0, kPool));
  EXPECT_THAT(pools.Left(0, kPool), IsEmpty()) << "one time too many";
}

TEST(MemPoolsTest, FreesOfBlocksThatNobodyHasSeenGoTheirWay) {
  MemPools pools;
  pools.Made(0, kPool, true);
  pools.Add(BlockAt(0x1000), kPool);
  EXPECT_FALSE(pools.Keeps(At(0x2000))) << "of no pool";
  EXPECT_FALSE(pools.Keeps(At(0x1000)));
  EXPECT_THAT(pools.Show(kPool), IsEmpty());
  EXPECT_THAT(pools.Left(0, kPool), IsEmpty());
}

TEST(MemPoolsTest, WhatASnapshotHasShownIsKeptUntilThePoolIsLeft) {
  MemPools pools;
  pools.Made(0, kPool, true);
  pools.Made(0, kOther, true);
  pools.Made(1, kPool, true);
  pools.Add(BlockAt(0x3000), kPool);
  pools.Add(BlockAt(0x1000), kPool);
  pools.Add(BlockAt(0x2000), kOther);
  pools.Add(BlockAt(0x4000, 1), kPool);
  EXPECT_THAT(AddressesOf(pools.Show(kPool)), ElementsAre(At(0x3000), At(0x1000), At(0x4000)));
  EXPECT_FALSE(pools.Plans(0, kPool)) << "what comes now would be shown next time";
  EXPECT_FALSE(pools.Plans(1, kPool));
  EXPECT_TRUE(pools.Plans(0, kOther));

  EXPECT_TRUE(pools.Keeps(At(0x1000)));
  EXPECT_FALSE(pools.Keeps(At(0x2000)));
  EXPECT_THAT(AddressesOf(pools.Show(kPool)), ElementsAre(At(0x3000), At(0x1000), At(0x4000))) << "freed or not";
  EXPECT_THAT(pools.Left(0, kPool), ElementsAre(At(0x1000)));
  EXPECT_FALSE(pools.Keeps(At(0x1000))) << "its pool is gone";
  EXPECT_FALSE(pools.Keeps(At(0x3000)));
  EXPECT_TRUE(pools.Keeps(At(0x4000))) << "the pool of the other device is not";
  EXPECT_THAT(pools.Left(1, kPool), ElementsAre(At(0x4000)));
}

// Its graphs may read it at every replay.
TEST(MemPoolsTest, WhatLivesWhenAGraphIsCapturedIsKeptUntilThePoolIsLeft) {
  MemPools pools;
  pools.Made(0, kPool, true);
  pools.Add(BlockAt(0x1000), kPool);
  pools.Add(BlockAt(0x2000), kPool);
  EXPECT_FALSE(pools.Keeps(At(0x1000)));
  pools.LeaveToNative(0, kPool);
  EXPECT_TRUE(pools.Keeps(At(0x2000)));
  EXPECT_THAT(pools.Left(0, kPool), ElementsAre(At(0x2000)));
}

TEST(MemPoolsTest, TakesLiveBlocksOutOfThoseThatAreExpected) {
  MemPools pools;
  pools.Made(0, kPool, true);
  pools.Add(BlockAt(0x1000), kPool);
  pools.Add(BlockAt(0x2000), kPool);
  (void)pools.Show(kPool);
  std::unordered_set<void*> expected{At(0x1000), At(0x2000), At(0x9000)};
  EXPECT_TRUE(pools.TakeLive(0, kPool, expected));
  EXPECT_THAT(expected, UnorderedElementsAre(At(0x9000))) << "the native allocator's";
  expected = {At(0x1000)};
  EXPECT_FALSE(pools.TakeLive(0, kPool, expected)) << "0x2000 lives";
  EXPECT_TRUE(pools.Keeps(At(0x2000)));
  expected = {At(0x1000)};
  EXPECT_TRUE(pools.TakeLive(0, kPool, expected)) << "it is kept, but freed";
}

// Each block is freed once: by who frees it, or by who leaves its pool.
TEST(MemPoolsTest, BlocksAreFreedOnceWhileOtherThreadsLookAtTheirPools) {
  MemPools pools;
  std::atomic<bool> stop{false};
  std::thread looks([&] {
    while (!stop) (void)pools.Show(kPool);
  });
  for (std::uintptr_t round = 1; round <= 2000; ++round) {
    pools.Made(0, kPool, true);
    std::size_t freed = 0;
    for (std::uintptr_t block = 1; block <= 4; ++block) pools.Add(BlockAt(round << 16 | block << 9), kPool);
    for (std::uintptr_t block = 1; block <= 4; ++block) freed += pools.Keeps(At(round << 16 | block << 9)) ? 0 : 1;
    ASSERT_EQ(freed + pools.Left(0, kPool).size(), 4u);
  }
  stop = true;
  looks.join();
}

}  // namespace
}  // namespace stalloc
