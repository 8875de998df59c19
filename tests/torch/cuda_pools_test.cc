#include "allocator/torch/cuda_pools.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

namespace stalloc {
namespace {

cudaStream_t Stream(std::uintptr_t number) { return reinterpret_cast<cudaStream_t>(number); }

PoolFilters::Filter Only(cudaStream_t accepted) {
  return [accepted](cudaStream_t stream) { return stream == accepted; };
}

TEST(PoolFiltersTest, AcceptsNothingWithoutAnOpenPool) {
  const PoolFilters filters;
  EXPECT_FALSE(filters.Accept(0, Stream(0)));
  EXPECT_FALSE(filters.Accept(3, Stream(7)));
}

TEST(PoolFiltersTest, AcceptsOnlyTheFiltersStreamsOnTheFiltersDevice) {
  PoolFilters filters;
  filters.Begin(1, {0, 1}, Only(Stream(7)));
  EXPECT_TRUE(filters.Accept(1, Stream(7)));
  EXPECT_FALSE(filters.Accept(1, Stream(8)));
  EXPECT_FALSE(filters.Accept(0, Stream(7)));
}

TEST(PoolFiltersTest, NumbersPoolsInTheOrderOfTheirFirstOpening) {
  PoolFilters filters;
  const auto number = [&](c10::DeviceIndex device) { return filters.Accept(device, Stream(1)).value().number; };
  filters.Begin(0, {4, 0}, Only(Stream(1)));
  EXPECT_EQ(number(0), 1u);
  filters.Begin(1, {4, 0}, Only(Stream(1)));
  EXPECT_EQ(number(1), 2u) << "another device's is another pool";
  filters.End(0, {4, 0});
  filters.Begin(0, {0, 9}, Only(Stream(1)));
  EXPECT_EQ(number(0), 3u);
  filters.End(0, {0, 9});
  filters.Begin(0, {4, 0}, Only(Stream(1)));
  EXPECT_EQ(number(0), 1u);
  EXPECT_EQ(filters.Accept(0, Stream(1))->id, (c10::MempoolId_t{4, 0}));
  EXPECT_TRUE(filters.HasOpened(0, {0, 9})) << "and closed";
  EXPECT_FALSE(filters.HasOpened(1, {0, 9}));
}

TEST(PoolFiltersTest, ClosesThePoolThatIsNamed) {
  PoolFilters filters;
  filters.Begin(0, {0, 1}, Only(Stream(1)));
  filters.Begin(0, {0, 2}, Only(Stream(2)));
  filters.End(0, {0, 1});
  EXPECT_FALSE(filters.Accept(0, Stream(1)));
  EXPECT_TRUE(filters.Accept(0, Stream(2)));
  filters.End(0, {5, 5});  // never opened
  filters.End(1, {0, 2});  // open on another device
  EXPECT_TRUE(filters.Accept(0, Stream(2)));
  filters.End(0, {0, 2});
  EXPECT_FALSE(filters.Accept(0, Stream(2)));
}

TEST(PoolFiltersTest, ClosesTheNewestOfTwoOpeningsOfOnePool) {
  PoolFilters filters;
  filters.Begin(0, {0, 1}, Only(Stream(1)));
  filters.Begin(0, {0, 1}, Only(Stream(2)));
  filters.End(0, {0, 1});
  EXPECT_TRUE(filters.Accept(0, Stream(1)));
  EXPECT_FALSE(filters.Accept(0, Stream(2)));
}

// Also of a MemPool, and of a pool that is ended before it was begun.
TEST(PoolFiltersTest, NothingThatBreaksCapturesPassesWhileAPoolIsOpen) {
  PoolFilters filters;
  filters.End(0, {0, 7});
  EXPECT_TRUE(CaptureGate::Passage(&filters.captures()));
  filters.Begin(0, {0, 1}, Only(Stream(1)));
  filters.Begin(1, {0, 2}, Only(Stream(1)));
  filters.End(0, {0, 1});
  EXPECT_FALSE(CaptureGate::Passage(&filters.captures()));
  filters.End(1, {0, 2});
  EXPECT_TRUE(CaptureGate::Passage(&filters.captures()));
}

// A MemPool that stays open, or a pool whose capture failed and never ended.
TEST(PoolFiltersTest, APoolThatHasServedAStreamWithoutACaptureKeepsNobodyOut) {
  cudaStream_t captured = Stream(2);
  PoolFilters filters([&](cudaStream_t stream) { return stream == captured; });
  const auto passes = [&] { return static_cast<bool>(CaptureGate::Passage(&filters.captures())); };
  filters.Begin(0, {0, 1}, [](cudaStream_t) { return true; });
  EXPECT_FALSE(passes()) << "its capture may be about to begin";
  ASSERT_TRUE(filters.Accept(0, Stream(0)));
  EXPECT_TRUE(passes());
  filters.Begin(0, {0, 2}, Only(Stream(2)));
  EXPECT_FALSE(passes());
  ASSERT_TRUE(filters.Accept(0, Stream(2)));  // the older pool accepts it first
  EXPECT_FALSE(passes());
  captured = nullptr;
  filters.End(0, {0, 2});
  EXPECT_TRUE(passes());
  filters.End(0, {0, 1});
  EXPECT_TRUE(passes());
}

TEST(PoolFiltersTest, ThreadsPassWhilePoolsOpenAndCloseAndNoneIsCapturedMeanwhile) {
  std::atomic<int> captures{0};
  PoolFilters filters([&](cudaStream_t stream) { return stream == Stream(1) && captures > 0; });
  filters.Begin(0, {0, 9}, Only(Stream(9)));  // for ever
  ASSERT_TRUE(filters.Accept(0, Stream(9)));
  std::atomic<bool> stop{false};
  std::atomic<int> passed{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      while (!stop) {
        const CaptureGate::Passage passage(&filters.captures());
        if (!passage) continue;
        EXPECT_EQ(captures, 0);
        ++passed;
      }
    });
  }
  for (int i = 0; i < 2000 || passed == 0; ++i) {
    filters.Begin(0, {0, 1}, Only(Stream(1)));
    ++captures;
    EXPECT_TRUE(filters.Accept(0, Stream(1)));
    --captures;
    filters.End(0, {0, 1});
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
}

TEST(PoolFiltersTest, PassesOnWhatAFilterThrowsAndStaysUsable) {
  PoolFilters filters;
  filters.Begin(0, {1, 0}, [](cudaStream_t) -> bool { throw std::runtime_error("capture invalidated"); });
  EXPECT_THROW((void)filters.Accept(0, Stream(1)), std::runtime_error);
  filters.End(0, {1, 0});
  EXPECT_FALSE(filters.Accept(0, Stream(1)));
}

TEST(PoolFiltersTest, AnswersWhileOtherThreadsOpenAndClosePools) {
  PoolFilters filters;
  filters.Begin(0, {0, 99}, Only(Stream(99)));
  std::atomic<bool> stop{false};
  std::atomic<int> rounds{0};
  std::vector<std::thread> threads;
  for (unsigned long long id = 1; id <= 2; ++id) {
    threads.emplace_back([&filters, &stop, &rounds, id] {
      while (!stop.load()) {
        filters.Begin(0, {0, id}, Only(Stream(id)));
        filters.End(0, {0, id});
        rounds.fetch_add(1);
      }
    });
  }
  while (rounds.load() < 20000) {
    ASSERT_TRUE(filters.Accept(0, Stream(99)));
    ASSERT_FALSE(filters.Accept(0, Stream(98)));
  }
  stop.store(true);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace stalloc
