// Random: a seeded source with draws that are the same everywhere (the standard's distributions are not). Not
// thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>

namespace stalloc::planner {

class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}

  std::uint64_t Next() { return engine_(); }
  // In [0, bound). REQUIRES: bound > 0, far below 2^64, so that the bias is nothing.
  std::uint32_t Below(std::size_t bound) { return static_cast<std::uint32_t>(engine_() % bound); }
  // In [0, 1).
  double Unit() { return static_cast<double>(engine_() >> 11) * 0x1p-53; }

 private:
  std::mt19937_64 engine_;
};

}  // namespace stalloc::planner
