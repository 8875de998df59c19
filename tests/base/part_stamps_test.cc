#include "allocator/base/part_stamps.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <random>
#include <vector>

namespace stalloc {
namespace part_stamps_test {

// Never earlier than what happened there last; later only by what happened near it.
TEST(PartStampsTest, TheLastInAPlaceIsNotMissed) {
  std::mt19937_64 random(7);
  for (const std::uint32_t end : {1u, 100u, 4095u, 70'000u, 1u << 20}) {
    PartStamps stamps(end);
    const std::uint32_t part = std::bit_floor(std::max(end / 4096, 1u));
    std::vector<std::uint64_t> happened(end, 0);
    const auto most = [&](std::uint32_t lo, std::uint32_t hi) {
      return *std::max_element(happened.begin() + lo, happened.begin() + std::min(hi, end));
    };
    for (std::uint64_t stamp = 1; stamp <= 300; ++stamp) {
      const auto lo = static_cast<std::uint32_t>(random() % end);
      const std::uint32_t hi = lo + 1 + static_cast<std::uint32_t>(random() % std::min(end - lo, 5 * part));
      if (random() % 2 == 0) {
        stamps.Set(lo, hi, stamp);
        std::fill(happened.begin() + lo, happened.begin() + hi, stamp);
      } else {
        EXPECT_GE(stamps.LastIn(lo, hi), most(lo, hi));
        EXPECT_LE(stamps.LastIn(lo, hi), most(lo / part * part, (hi + part - 1) / part * part));
      }
    }
  }
}

}  // namespace part_stamps_test
}  // namespace stalloc
