#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <set>

#include "allocator/engine/occupancy.h"

namespace stalloc {
namespace start_bits_test {

std::uint64_t LastBefore(const std::set<std::uint64_t>& members, std::uint64_t bound) {
  const auto after = members.lower_bound(bound);
  return after == members.begin() ? StartBits::kNone : *std::prev(after);
}

std::uint64_t FirstFrom(const std::set<std::uint64_t>& members, std::uint64_t from) {
  const auto at = members.lower_bound(from);
  return at == members.end() ? StartBits::kNone : *at;
}

class StartBitsTest : public testing::TestWithParam<std::uint64_t> {};

TEST_P(StartBitsTest, AgreesWithAnOrderedSetOverRandomOperations) {
  const std::uint64_t limit = GetParam();
  std::mt19937_64 random(limit);
  SCOPED_TRACE("seed " + std::to_string(limit));
  StartBits bits(limit);
  std::set<std::uint64_t> members;
  for (int step = 0; step < 30'000; ++step) {
    // In turns dense around one place and sparse over all, so that every level's summary empties and fills.
    const bool clustered = step / 2000 % 2 == 0;
    const std::uint64_t granule = clustered ? (limit / 2 + random() % 200) % limit : random() % limit;
    if (members.contains(granule)) {
      bits.Erase(granule);
      members.erase(granule);
    } else if (members.size() < 300) {
      bits.Insert(granule);
      members.insert(granule);
    } else {
      const std::uint64_t victim = *members.begin();
      bits.Erase(victim);
      members.erase(victim);
    }
    const std::uint64_t query = random() % (limit + 2);
    ASSERT_EQ(bits.LastBefore(query), LastBefore(members, query)) << "step " << step << ", bound " << query;
    ASSERT_EQ(bits.FirstFrom(query), FirstFrom(members, query)) << "step " << step << ", from " << query;
    ASSERT_EQ(bits.Contains(granule), members.contains(granule));
  }
  EXPECT_TRUE(bits.Consistent());
}

INSTANTIATE_TEST_SUITE_P(Limits, StartBitsTest,
                         testing::Values(1, 2, 63, 64, 65, 4095, 4096, 4097, 262'144, 262'145, 20'000'000));

TEST(StartBitsTest, AnEmptySetHasNoMembers) {
  StartBits bits(0);
  EXPECT_EQ(bits.LastBefore(0), StartBits::kNone);
  EXPECT_EQ(bits.LastBefore(100), StartBits::kNone);
  EXPECT_EQ(bits.FirstFrom(0), StartBits::kNone);
  EXPECT_FALSE(bits.Contains(0));
}

TEST(StartBitsTest, FindsAMemberAtTheFarEndOfALargeArena) {
  constexpr std::uint64_t kLimit = (std::uint64_t{140} << 30) / 512;
  StartBits bits(kLimit);
  bits.Insert(0);
  bits.Insert(kLimit - 1);
  EXPECT_EQ(bits.LastBefore(kLimit - 1), 0u);
  EXPECT_EQ(bits.LastBefore(kLimit), kLimit - 1);
  EXPECT_EQ(bits.FirstFrom(1), kLimit - 1);
  bits.Erase(0);
  EXPECT_EQ(bits.LastBefore(kLimit - 1), StartBits::kNone);
}

}  // namespace start_bits_test
}  // namespace stalloc
