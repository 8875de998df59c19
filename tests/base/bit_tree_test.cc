#include "allocator/base/bit_tree.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <set>

namespace stalloc {
namespace bit_tree_test {

std::uint64_t LastBefore(const std::set<std::uint64_t>& members, std::uint64_t bound) {
  const auto after = members.lower_bound(bound);
  return after == members.begin() ? BitTree::kNone : *std::prev(after);
}

class BitTreeTest : public testing::TestWithParam<std::uint64_t> {};

TEST_P(BitTreeTest, AgreesWithAnOrderedSetOverRandomOperations) {
  const std::uint64_t limit = GetParam();
  std::mt19937_64 random(limit);
  SCOPED_TRACE("seed " + std::to_string(limit));
  BitTree bits(limit);
  std::set<std::uint64_t> members;
  for (int step = 0; step < 30'000; ++step) {
    // In turns dense around one place and sparse over all, so that every level's summary empties and fills.
    const bool clustered = step / 2000 % 2 == 0;
    const std::uint64_t member = clustered ? (limit / 2 + random() % 200) % limit : random() % limit;
    if (members.contains(member)) {
      bits.Erase(member);
      members.erase(member);
    } else if (members.size() < 300) {
      bits.Insert(member);
      members.insert(member);
    } else {
      const std::uint64_t victim = *members.begin();
      bits.Erase(victim);
      members.erase(victim);
    }
    const std::uint64_t query = random() % (limit + 2);
    ASSERT_EQ(bits.LastBefore(query), LastBefore(members, query)) << "step " << step << ", bound " << query;
    ASSERT_EQ(bits.Contains(member), members.contains(member));
  }
  EXPECT_TRUE(bits.Consistent());
}

INSTANTIATE_TEST_SUITE_P(Limits, BitTreeTest,
                         testing::Values(1, 2, 63, 64, 65, 4095, 4096, 4097, 262'144, 262'145, 20'000'000));

TEST(BitTreeTest, AnEmptySetHasNoMembers) {
  BitTree bits(0);
  EXPECT_EQ(bits.LastBefore(0), BitTree::kNone);
  EXPECT_EQ(bits.LastBefore(100), BitTree::kNone);
  EXPECT_FALSE(bits.Contains(0));
}

TEST(BitTreeTest, FindsAMemberAtTheFarEndOfALargeArena) {
  constexpr std::uint64_t kLimit = (std::uint64_t{140} << 30) / 512;
  BitTree bits(kLimit);
  bits.Insert(0);
  bits.Insert(kLimit - 1);
  EXPECT_EQ(bits.LastBefore(kLimit - 1), 0u);
  EXPECT_EQ(bits.LastBefore(kLimit), kLimit - 1);
  bits.Erase(0);
  EXPECT_EQ(bits.LastBefore(kLimit - 1), BitTree::kNone);
}

}  // namespace bit_tree_test
}  // namespace stalloc
