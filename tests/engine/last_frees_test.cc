#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <random>
#include <vector>

#include "allocator/engine/freed_blocks.h"

namespace stalloc {
namespace last_frees_test {

// Never earlier than what was freed there last; later only by what was freed near it.
TEST(LastFreesTest, TheLastFreeOfARangeIsNotMissed) {
  std::mt19937_64 random(7);
  for (const std::uint32_t granules : {1u, 100u, 4095u, 70'000u, 1u << 20}) {
    LastFrees last(granules);
    const std::uint32_t part = std::bit_floor(std::max(granules / 4096, 1u));
    std::vector<std::uint64_t> freed(granules, 0);
    const auto most = [&](std::uint32_t lo, std::uint32_t hi) {
      return *std::max_element(freed.begin() + lo, freed.begin() + std::min(hi, granules));
    };
    for (std::uint64_t stamp = 1; stamp <= 300; ++stamp) {
      const auto lo = static_cast<std::uint32_t>(random() % granules);
      const std::uint32_t hi = lo + 1 + static_cast<std::uint32_t>(random() % std::min(granules - lo, 5 * part));
      if (random() % 2 == 0) {
        last.Note(lo, hi, stamp);
        std::fill(freed.begin() + lo, freed.begin() + hi, stamp);
      } else {
        EXPECT_GE(last.In(lo, hi), most(lo, hi));
        EXPECT_LE(last.In(lo, hi), most(lo / part * part, (hi + part - 1) / part * part));
      }
    }
  }
}

}  // namespace last_frees_test
}  // namespace stalloc
