// Seeded mutations of byte strings, as fuzzers make them: flipped bits, edge values, pieces moved, cut, or taken from
// another input. Deterministic for a seed. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>

namespace stalloc::fuzz {

class Mutator {
 public:
  explicit Mutator(std::uint64_t seed) : random_(seed) {}

  // One to eight changes; `other` gives pieces. Never longer than kMaxBytes.
  [[nodiscard]] std::string Mutate(std::string input, const std::string& other);
  // In [0, bound). REQUIRES: bound > 0.
  [[nodiscard]] std::size_t Below(std::size_t bound) { return random_() % bound; }

  static constexpr std::size_t kMaxBytes = 1u << 16;

 private:
  void ChangeOnce(std::string& input, const std::string& other);
  [[nodiscard]] std::size_t Place(const std::string& input) { return input.empty() ? 0 : Below(input.size()); }

  std::mt19937_64 random_;
};

}  // namespace stalloc::fuzz
