#include "allocator/arena/block_cache.h"

#include <gtest/gtest.h>

namespace stalloc {
namespace {

std::unique_ptr<MappedBlock> Block(Address address, Bytes bytes, StreamHandle stream, bool recorded) {
  auto block = std::make_unique<MappedBlock>();
  block->address = address;
  block->bytes = bytes;
  block->stream = stream;
  block->recorded = recorded;
  return block;
}
std::unique_ptr<MappedBlock> Block(Address address, Bytes bytes, StreamHandle stream) {
  return Block(address, bytes, stream, false);
}

Address AddressOf(const std::unique_ptr<MappedBlock>& block) { return block == nullptr ? 0 : block->address; }

TEST(BlockCacheTest, ServesTheExactSizeOnTheSameStreamYoungestFirst) {
  BlockCache cache;
  cache.Put(Block(1, 1024, 5));
  cache.Put(Block(2, 1024, 5));
  cache.Put(Block(3, 2048, 5));
  EXPECT_EQ(cache.bytes(), 4096u);
  EXPECT_EQ(cache.Take(512, 5), nullptr);
  EXPECT_EQ(cache.Take(1024, 6), nullptr);
  EXPECT_EQ(AddressOf(cache.Take(1024, 5)), 2u);
  EXPECT_EQ(AddressOf(cache.Take(1024, 5)), 1u);
  EXPECT_EQ(cache.Take(1024, 5), nullptr);
  EXPECT_EQ(cache.bytes(), 2048u);
}

TEST(BlockCacheTest, AfterASynchronisationEveryStreamIsServed) {
  BlockCache cache;
  cache.Put(Block(1, 1024, 5));
  cache.AllClean();
  cache.Put(Block(2, 1024, 5));
  EXPECT_EQ(AddressOf(cache.Take(1024, 6)), 1u) << "block 2 was freed after it";
  EXPECT_EQ(cache.Take(1024, 6), nullptr);
  EXPECT_EQ(AddressOf(cache.Take(1024, 5)), 2u);
}

TEST(BlockCacheTest, ABlockOfSeveralStreamsWaitsForTheSynchronisation) {
  BlockCache cache;
  cache.Put(Block(1, 1024, 5, true));
  EXPECT_EQ(cache.Take(1024, 5), nullptr);
  EXPECT_EQ(cache.TakeOldestClean(), nullptr);
  cache.AllClean();
  EXPECT_EQ(AddressOf(cache.Take(1024, 5)), 1u);
}

TEST(BlockCacheTest, OnlyCleanBlocksAreTakenApartOldestFirst) {
  BlockCache cache;
  cache.Put(Block(1, 1024, 5));
  cache.Put(Block(2, 2048, 5));
  EXPECT_EQ(cache.TakeOldestClean(), nullptr);
  cache.AllClean();
  cache.Put(Block(3, 1024, 5));
  auto oldest = cache.TakeOldestClean();
  EXPECT_EQ(AddressOf(oldest), 1u);
  cache.PutBackOldest(std::move(oldest));
  EXPECT_EQ(AddressOf(cache.TakeOldestClean()), 1u);
  EXPECT_EQ(AddressOf(cache.TakeOldestClean()), 2u);
  EXPECT_EQ(cache.TakeOldestClean(), nullptr);
  EXPECT_FALSE(cache.empty());
}

}  // namespace
}  // namespace stalloc
