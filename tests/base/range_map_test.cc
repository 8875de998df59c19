#include "allocator/base/range_map.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

namespace stalloc {
namespace range_map_test {

TEST(RangeMapTest, AgreesWithOneValueAnInteger) {
  constexpr std::uint32_t kLimit = 64;
  std::mt19937_64 random(3);
  const auto number = [&](std::uint32_t most) { return static_cast<std::uint32_t>(random() % most); };
  RangeMap<int> map(kLimit, 9);
  std::vector<int> values(kLimit, 9);
  for (int step = 0; step < 3000; ++step) {
    const std::uint32_t lo = number(kLimit);
    const std::uint32_t hi = lo + number(kLimit - lo + 1);
    const int value = static_cast<int>(number(10));
    map.Assign({lo, hi}, value);
    std::fill(values.begin() + lo, values.begin() + hi, value);
    const int least = static_cast<int>(number(10));
    std::vector<bool> found(kLimit, false);
    std::uint32_t last = 0;
    map.ForEachFrom(least, [&](std::uint32_t begin, std::uint32_t end) {
      EXPECT_TRUE(begin < end && (begin == 0 || begin > last)) << "maximal, ascending";
      std::fill(found.begin() + begin, found.begin() + end, true);
      last = end;
    });
    for (std::uint32_t at = 0; at < kLimit; ++at) ASSERT_EQ(found[at], values[at] >= least) << step << ", " << at;
  }
}

}  // namespace range_map_test
}  // namespace stalloc
