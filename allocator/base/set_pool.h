// SetPool<kMembers>: sets of integers below kMembers, kept in a pool of fixed size and named by their index in it; 0 is
// the empty set, which takes no place.
//
// Not thread-safe; noexcept; memory from mmap, taken once.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "allocator/base/mapped_array.h"

namespace stalloc {

template <std::size_t kMembers>
class SetPool {
 public:
  using Set = std::uint16_t;
  static constexpr std::size_t kMostSets = 0xffff;

  explicit SetPool(std::size_t most) : sets_(most + 1) {}

  // False if the pool is full; then nothing changed.
  [[nodiscard]] bool Add(Set& set, std::size_t member) noexcept {
    if (set == 0 && !Make(set)) return false;
    sets_[set].words[member / 64] |= std::uint64_t{1} << (member % 64);
    return true;
  }
  // Another set of the same members. False if the pool is full; then it is empty.
  [[nodiscard]] bool Copy(Set set, Set& copy) noexcept {
    copy = 0;
    if (set == 0) return true;
    if (!Make(copy)) return false;
    sets_[copy].words = sets_[set].words;
    return true;
  }
  // Removes the members for which remove(member) holds.
  template <typename Remove>
  void RemoveIf(Set& set, Remove&& remove) noexcept {
    All(set, [&](std::size_t member) {
      if (remove(member)) sets_[set].words[member / 64] &= ~(std::uint64_t{1} << (member % 64));
      return true;
    });
    if (sets_[set].words == Words{}) Clear(set);
  }
  void Clear(Set& set) noexcept {
    if (set == 0) return;
    sets_[set] = {{}, free_};
    free_ = std::exchange(set, Set{0});
  }

  // True if visit(member) is for each of them; stops at the first for which it is not.
  template <typename Visit>
  bool All(Set set, Visit&& visit) const {
    for (std::size_t word = 0; set != 0 && word < kWords; ++word) {
      for (std::uint64_t left = sets_[set].words[word]; left != 0; left &= left - 1) {
        if (!visit(word * 64 + static_cast<std::size_t>(std::countr_zero(left)))) return false;
      }
    }
    return true;
  }

 private:
  static constexpr std::size_t kWords = (kMembers + 63) / 64;
  using Words = std::array<std::uint64_t, kWords>;
  struct Place {
    Words words{};
    Set next = 0;  // of the free ones
  };
  bool Make(Set& set) noexcept {
    if (free_ == 0 && used_ + 1 >= sets_.size()) return false;
    set = free_ != 0 ? std::exchange(free_, sets_[free_].next) : static_cast<Set>(++used_);
    return true;
  }

  MappedArray<Place> sets_;  // 0 is nobody's
  std::size_t used_ = 0;     // that were ever given out
  Set free_ = 0;
};

}  // namespace stalloc
