#include "allocator/arena/address_space.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <vector>

namespace stalloc {
namespace {

TEST(AddressSpaceTest, TakesTheLowestRangeThatFits) {
  AddressSpace space(1000, 100);
  EXPECT_EQ(space.Take(40), 1000u);
  EXPECT_EQ(space.Take(40), 1040u);
  EXPECT_EQ(space.Take(40), 0u);
  space.GiveBack(1000, 40);
  EXPECT_EQ(space.Take(20), 1000u);
  EXPECT_EQ(space.Take(20), 1020u);
  EXPECT_EQ(space.Take(20), 1080u);
  EXPECT_EQ(space.free_bytes(), 0u);
}

TEST(AddressSpaceTest, NeighboursJoinInEitherOrder) {
  AddressSpace space(1000, 90);
  for (int i = 0; i < 3; ++i) {
    ASSERT_NE(space.Take(30), 0u);
  }
  space.GiveBack(1000, 30);
  space.GiveBack(1060, 30);
  EXPECT_EQ(space.Take(60), 0u);
  space.GiveBack(1030, 30);
  EXPECT_EQ(space.Take(90), 1000u);
}

TEST(AddressSpaceTest, RandomTakesNeverOverlapAndAllComesBack) {
  const std::uint64_t seed = 20240611;
  RecordProperty("seed", std::to_string(seed));
  std::mt19937_64 random(seed);
  constexpr Bytes kTotal = 1000;
  AddressSpace space(5000, kTotal);
  std::map<Address, Bytes> taken;  // the naive model
  for (int step = 0; step < 20000; ++step) {
    if (random() % 2 == 0) {
      const Bytes bytes = 1 + random() % 60;
      const Address address = space.Take(bytes);
      if (address == 0) {
        continue;
      }
      ASSERT_GE(address, 5000u);
      ASSERT_LE(address + bytes, 5000 + kTotal);
      auto next = taken.lower_bound(address);
      ASSERT_TRUE(next == taken.end() || next->first >= address + bytes) << "seed " << seed;
      ASSERT_TRUE(next == taken.begin() || std::prev(next)->first + std::prev(next)->second <= address);
      taken.emplace(address, bytes);
    } else if (!taken.empty()) {
      const auto it = std::next(taken.begin(), static_cast<std::ptrdiff_t>(random() % taken.size()));
      space.GiveBack(it->first, it->second);
      taken.erase(it);
    }
  }
  for (const auto& [address, bytes] : taken) {
    space.GiveBack(address, bytes);
  }
  EXPECT_EQ(space.Take(kTotal), 5000u);
}

}  // namespace
}  // namespace stalloc
