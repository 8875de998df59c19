#include "allocator/base/set_pool.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

namespace stalloc {
namespace set_pool_test {

using Sets = SetPool<128>;

std::vector<std::size_t> Members(const Sets& sets, Sets::Set set) {
  std::vector<std::size_t> members;
  sets.All(set, [&](std::size_t member) {
    members.push_back(member);
    return true;
  });
  return members;
}

TEST(SetPoolTest, KeepsSetsApartAndResetsThem) {
  Sets sets(2);
  Sets::Set first = 0;
  Sets::Set second = 0;
  Sets::Set third = 0;
  for (const std::size_t member : {10, 127, 10, 64}) EXPECT_TRUE(sets.Add(first, member));
  EXPECT_TRUE(sets.Add(second, 11));
  EXPECT_FALSE(sets.Add(third, 12)) << "full";
  EXPECT_EQ(third, 0u);
  EXPECT_EQ(Members(sets, first), (std::vector<std::size_t>{10, 64, 127}));
  sets.RemoveIf(first, [](std::size_t member) { return member == 64; });
  EXPECT_EQ(Members(sets, first), (std::vector<std::size_t>{10, 127}));
  sets.RemoveIf(first, [](std::size_t) { return true; });
  EXPECT_EQ(first, 0u);
  EXPECT_TRUE(sets.Add(third, 12));
  EXPECT_EQ(Members(sets, third), (std::vector<std::size_t>{12})) << "nothing of whose it was";
  EXPECT_EQ(Members(sets, second), (std::vector<std::size_t>{11}));
}

TEST(SetPoolTest, ACopyIsItsOwn) {
  Sets sets(2);
  Sets::Set set = 0;
  for (const std::size_t member : {1, 2, 3}) ASSERT_TRUE(sets.Add(set, member));
  Sets::Set copy = 0;
  ASSERT_TRUE(sets.Copy(set, copy));
  sets.RemoveIf(set, [](std::size_t member) { return member == 2; });
  EXPECT_EQ(Members(sets, copy), (std::vector<std::size_t>{1, 2, 3}));
  Sets::Set another = 7;
  EXPECT_FALSE(sets.Copy(set, another)) << "full";
  EXPECT_EQ(another, 0u);
  EXPECT_TRUE(sets.Copy(0, another)) << "an empty one takes nothing";
}

}  // namespace set_pool_test
}  // namespace stalloc
