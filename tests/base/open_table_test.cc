#include "allocator/base/open_table.h"

#include <gtest/gtest.h>

#include <random>
#include <unordered_map>
#include <vector>

namespace stalloc {
namespace {

using Oracle = std::unordered_map<std::uint64_t, std::uint64_t>;

void ExpectSame(const OpenTable<std::uint64_t>& table, const Oracle& oracle) {
  ASSERT_EQ(table.size(), oracle.size());
  std::size_t visited = 0;
  table.ForEach([&](std::uint64_t key, std::uint64_t value) {
    ++visited;
    const auto found = oracle.find(key);
    ASSERT_NE(found, oracle.end()) << key;
    EXPECT_EQ(found->second, value) << key;
  });
  EXPECT_EQ(visited, oracle.size());
  for (const auto& [key, value] : oracle) {
    const std::uint64_t* found = table.Find(key);
    ASSERT_NE(found, nullptr) << key;
    EXPECT_EQ(*found, value);
  }
}

// Random inserts, look-ups and erasures against std::unordered_map, over key sets that cluster in different ways.
TEST(OpenTableTest, BehavesAsAMapUnderRandomOperations) {
  const std::uint64_t strides[] = {1, 512, 1u << 21, 0x9e3779b97f4a7c15u};
  for (unsigned seed = 1; seed <= 8; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    const std::uint64_t stride = strides[seed % std::size(strides)];
    const std::uint64_t keys = seed % 2 == 0 ? 40 : 3000;  // few keys: dense clusters, many erasures that hit
    OpenTable<std::uint64_t> table(8);
    Oracle oracle;
    for (int step = 0; step < 40'000; ++step) {
      const std::uint64_t key = random() % keys * stride;
      switch (random() % 3) {
        case 0: {
          const std::uint64_t value = random();
          EXPECT_EQ(table.Insert(key, value), oracle.insert_or_assign(key, value).second);
          break;
        }
        case 1: {
          if (step % 2 == 0 && table.Find(key) != nullptr) {
            table.EraseFound(table.Find(key));
            oracle.erase(key);
            break;
          }
          const auto erased = table.Erase(key);
          const auto found = oracle.find(key);
          ASSERT_EQ(erased.has_value(), found != oracle.end());
          if (erased.has_value()) {
            EXPECT_EQ(*erased, found->second);
            oracle.erase(found);
          }
          break;
        }
        default:
          ASSERT_EQ(table.Find(key) != nullptr, oracle.count(key) == 1);
      }
      if (step % 4000 == 0) ExpectSame(table, oracle);
    }
    ExpectSame(table, oracle);
  }
}

TEST(OpenTableTest, HoldsItsCapacityWithoutGrowing) {
  OpenTable<std::uint32_t> table(1000);
  const std::size_t capacity = table.capacity();
  EXPECT_GE(capacity, 1000u);
  for (std::uint64_t key = 0; key < capacity; ++key) table.Insert(key * 512, 1);
  EXPECT_EQ(table.capacity(), capacity);
  table.Insert(capacity * 512, 1);
  EXPECT_GT(table.capacity(), capacity);
  EXPECT_EQ(table.size(), capacity + 1);
}

TEST(OpenTableTest, ReplacingAtTheLimitDoesNotGrow) {
  OpenTable<std::uint32_t> table(10);
  const std::size_t capacity = table.capacity();
  for (std::uint64_t key = 0; key < capacity; ++key) table.Insert(key, 1);
  for (std::uint64_t key = 0; key < capacity; ++key) EXPECT_FALSE(table.Insert(key, 2));
  EXPECT_EQ(table.capacity(), capacity);
}

TEST(OpenTableTest, ZeroAndTheLargestAllowedKeyAreOrdinary) {
  OpenTable<int> table(4);
  EXPECT_EQ(table.Find(0), nullptr);
  table.Insert(0, 10);
  table.Insert(~std::uint64_t{0} - 1, 20);
  EXPECT_EQ(*table.Find(0), 10);
  EXPECT_EQ(*table.Find(~std::uint64_t{0} - 1), 20);
  EXPECT_EQ(table.Erase(0), 10);
  EXPECT_EQ(table.Find(0), nullptr);
}

TEST(OpenTableTest, ClearLeavesAnEmptyTableOfTheSameCapacity) {
  OpenTable<int> table(100);
  for (std::uint64_t key = 0; key < 50; ++key) table.Insert(key, 1);
  const std::size_t capacity = table.capacity();
  table.Clear();
  EXPECT_TRUE(table.empty());
  EXPECT_EQ(table.capacity(), capacity);
  EXPECT_EQ(table.Find(7), nullptr);
}

}  // namespace
}  // namespace stalloc
