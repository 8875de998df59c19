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
