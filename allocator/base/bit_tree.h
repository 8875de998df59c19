// BitTree: a set of integers below a limit, which finds the last member below a bound in a few cache lines.
//
// A 64-ary tree over one bit an integer, in which bit i of level k+1 says that word i of level k is not zero. Source: a
// van Emde Boas layout flattened to machine words. Not thread-safe; no errors; memory from mmap, of which untouched
// parts cost nothing.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "allocator/base/mapped_array.h"

namespace stalloc {

class BitTree {
 public:
  static constexpr std::uint64_t kNone = ~std::uint64_t{0};

  // Members are in [0, limit). `limit` 0 is an empty set that stays empty.
  explicit BitTree(std::uint64_t limit);

  // REQUIRES: member < limit, and not a member (Insert) or a member (Erase).
  void Insert(std::uint64_t member) noexcept;
  void Erase(std::uint64_t member) noexcept;

  [[nodiscard]] bool Contains(std::uint64_t member) const noexcept {
    return member < limit_ && (levels_[0][member >> 6] >> (member & 63) & 1) != 0;
  }
  // Its word is fetched into the cache. REQUIRES: below the limit.
  void Prefetch(std::uint64_t member) const noexcept { __builtin_prefetch(&levels_[0][member >> 6]); }
  // Takes the memory of members < `bound` now, so that no Insert waits for it. REQUIRES: bound <= limit.
  void Populate(std::uint64_t bound) noexcept;
  // Greatest member < `bound`; kNone if there is none. Any bound is fine.
  [[nodiscard]] std::uint64_t LastBefore(std::uint64_t bound) const noexcept;

  // True when every summary bit says the truth about its word. O(limit / 64): tests and invariant walks.
  [[nodiscard]] bool Consistent() const noexcept;

 private:
  static constexpr std::size_t kMaxLevels = 7;  // 64^7 members

  std::uint64_t limit_;
  std::size_t depth_ = 0;
  std::array<MappedArray<std::uint64_t>, kMaxLevels> levels_;
};

}  // namespace stalloc
