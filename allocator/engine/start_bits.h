// StartBits: a set of granule numbers below a fixed limit, with "last member before" in a few cache lines.
//
// A 64-ary summary tree over one bit per granule: bit i of level k+1 says that word i of level k is not zero. 300
// million granules (an arena of 140 GiB) take five levels. Cost: O(levels) words for every operation, usually two or
// three, since members lie close together. Not thread-safe; no errors; memory from mmap, of which untouched parts cost
// nothing.
//
//   level 2                     1
//   level 1             1000000000000001
//   level 0  10000001 00000000 ..... 01000000     one bit per 512-byte granule
//
// Source: a van Emde Boas layout flattened to machine words (as in the "summary" of vEB trees; cf. Linux's sbitmap).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "allocator/base/mapped_array.h"

namespace stalloc {

class StartBits {
 public:
  static constexpr std::uint64_t kNone = ~std::uint64_t{0};

  // Members are in [0, limit). `limit` 0 is an empty set that stays empty.
  explicit StartBits(std::uint64_t limit);

  // REQUIRES: granule < limit, and not a member (Insert) or a member (Erase).
  void Insert(std::uint64_t granule) noexcept;
  void Erase(std::uint64_t granule) noexcept;

  [[nodiscard]] bool Contains(std::uint64_t granule) const noexcept {
    return granule < limit_ && (levels_[0][granule >> 6] >> (granule & 63) & 1) != 0;
  }
  // The granule will soon be looked at, inserted or erased: its word is fetched into the cache. REQUIRES: below the
  // limit.
  void Prefetch(std::uint64_t granule) const noexcept { __builtin_prefetch(&levels_[0][granule >> 6]); }
  // Greatest member < `bound`; kNone if there is none. Any bound is fine.
  [[nodiscard]] std::uint64_t LastBefore(std::uint64_t bound) const noexcept;
  // Smallest member >= `from`; kNone if there is none.
  [[nodiscard]] std::uint64_t FirstFrom(std::uint64_t from) const noexcept;

  // True when every summary bit says the truth about its word. O(limit / 64): tests and invariant walks.
  [[nodiscard]] bool Consistent() const noexcept;

 private:
  static constexpr std::size_t kMaxLevels = 7;  // 64^7 granules: more than 64 bits of bytes address

  std::uint64_t limit_;
  std::size_t depth_ = 0;
  std::array<MappedArray<std::uint64_t>, kMaxLevels> levels_;
};

}  // namespace stalloc
