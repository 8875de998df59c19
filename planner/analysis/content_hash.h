// ContentHash: 128 bits of a sequence of numbers and texts, the same across runs and machines. Different sequences
// share them with a chance of 2^-128 or so (not against an adversary). Not thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace stalloc::planner {

class ContentHash {
 public:
  using Value = std::array<std::uint64_t, 2>;

  explicit ContentHash(Value seed = {}) : value_(seed) {}

  // Two chains with different constants; each number passes through both.
  void Add(std::uint64_t number) {
    value_[0] = Mix(value_[0] + number + 0x9e3779b97f4a7c15u);
    value_[1] = Mix(((value_[1] ^ number) * 0xd6e8feb86659fd93u) + 0xa0761d6478bd642fu);
  }
  void Add(std::string_view text) {
    Add(text.size());
    for (const char letter : text) Add(static_cast<unsigned char>(letter));
  }
  // In one number; each below 2^32.
  void AddPair(std::uint64_t high, std::uint64_t low) { Add(high << 32 | low); }

  [[nodiscard]] const Value& value() const { return value_; }

 private:
  // The finalizer of SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014).
  static std::uint64_t Mix(std::uint64_t value) {
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
    value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
    return value ^ (value >> 31);
  }

  Value value_;
};

}  // namespace stalloc::planner
