// Seeds of the engine's stress tests: a few in CTest, more in the nightly runs.
//
//   STALLOC_STRESS_SEED (1)   the first
//   STALLOC_STRESS_SEEDS      how many; default: what the test asks for
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>

namespace stalloc {

inline auto StressSeeds(std::uint64_t usual_count) {
  const auto from_environment = [](const char* name, std::uint64_t otherwise) {
    const char* const text = std::getenv(name);
    return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
  };
  const std::uint64_t first = from_environment("STALLOC_STRESS_SEED", 1);
  return testing::Range<std::uint64_t>(first, first + from_environment("STALLOC_STRESS_SEEDS", usual_count));
}

}  // namespace stalloc
