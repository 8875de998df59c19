// Extents: what the blocks beside the slots occupy, as few address ranges: blocks that touch are one.
//
// So many blocks lie side by side that a search for room has to look at ranges, not at blocks. A sorted array: looked
// up by bisection, changed by moving what is behind. Offsets in granules of kBlockAlignment bytes. Not thread-safe;
// noexcept; memory from mmap, taken once.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "allocator/base/mapped_array.h"

namespace stalloc {

class Extents {
 public:
  static constexpr std::size_t kMost = 32768;
  struct Extent {
    std::uint32_t lo = 0;
    std::uint32_t hi = 0;
  };

  Extents() noexcept { *End() = {kEnd, kEnd}; }

  // There is room for one more block anywhere, and for cutting one in two.
  [[nodiscard]] bool CanChange() const noexcept { return size_ < kMost - 1; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

  // REQUIRES: CanChange(); lo < hi; nothing of it is occupied.
  void Add(std::uint32_t lo, std::uint32_t hi) noexcept {
    Extent* const next = FirstEndingFrom(lo);  // the one that ends at lo, or the first above
    const bool joins_below = next != End() && next->hi == lo;
    Extent* const above = joins_below ? next + 1 : next;
    const bool joins_above = above != End() && above->lo == hi;
    if (joins_below && joins_above) {
      next->hi = above->hi;
      Erase(above);
    } else if (joins_below) {
      next->hi = hi;
    } else if (joins_above) {
      above->lo = lo;
    } else {
      Insert(next, {lo, hi});
    }
  }

  // REQUIRES: CanChange(); all of it is occupied.
  void Remove(std::uint32_t lo, std::uint32_t hi) noexcept {
    Extent* const extent = FirstEndingFrom(lo + 1);
    if (extent->lo == lo && extent->hi == hi) {
      Erase(extent);
    } else if (extent->lo == lo) {
      extent->lo = hi;
    } else if (extent->hi == hi) {
      extent->hi = lo;
    } else {
      const Extent above{hi, extent->hi};
      extent->hi = lo;
      Insert(extent + 1, above);
    }
  }

  // One begins at hi, and none ends at lo. REQUIRES: [lo, hi) is not occupied.
  [[nodiscard]] bool TouchOnlyAbove(std::uint32_t lo, std::uint32_t hi) const noexcept {
    const Extent* const next =
        std::partition_point(Begin(), End(), [lo](const Extent& extent) { return extent.hi < lo; });
    return next != End() && next->hi != lo && next->lo == hi;
  }

  // Walks over ascending ranges. Valid until the next change.
  class Walk {
   public:
    explicit Walk(const Extents& extents) noexcept : extent_(extents.Begin()), end_(extents.End()) {}

    // Calls visit(lo, hi) for each range of [lo, hi) that is not occupied, ascending, as long as it returns true.
    // REQUIRES: lo is not below that of the last call.
    template <typename Visit>
    void ForEachFree(std::uint32_t lo, std::uint32_t hi, Visit&& visit) noexcept {
      while (extent_ != end_ && extent_->hi <= lo) ++extent_;
      for (const Extent* extent = extent_; lo < hi; ++extent) {
        const std::uint32_t free_end = extent == end_ ? hi : std::min(extent->lo, hi);
        if (free_end > lo && !visit(lo, free_end)) return;
        if (extent == end_) return;
        lo = std::max(lo, extent->hi);
      }
    }

   private:
    const Extent* extent_;
    const Extent* end_;
  };

  // The ranges between them, ascending and without an end: from `hi` of one to `lo` of the next, first the one below
  // all of them, which may be empty. Valid until the next change.
  [[nodiscard]] const Extent* Between() const noexcept { return extents_.data(); }

 private:
  [[nodiscard]] Extent* Begin() noexcept { return extents_.data() + 1; }
  [[nodiscard]] const Extent* Begin() const noexcept { return extents_.data() + 1; }
  [[nodiscard]] Extent* End() noexcept { return Begin() + size_; }
  [[nodiscard]] const Extent* End() const noexcept { return Begin() + size_; }
  [[nodiscard]] Extent* FirstEndingFrom(std::uint32_t at) noexcept {
    return std::partition_point(Begin(), End(), [at](const Extent& extent) { return extent.hi < at; });
  }
  void Insert(Extent* at, Extent extent) noexcept {
    std::copy_backward(at, End() + 1, End() + 2);
    *at = extent;
    ++size_;
  }
  void Erase(Extent* at) noexcept {
    std::copy(at + 1, End() + 1, at);
    --size_;
  }

  static constexpr std::uint32_t kEnd = 0xffffffffu;  // no granule is there
  MappedArray<Extent> extents_{kMost + 2};            // between two empty ones, at 0 and at kEnd
  std::size_t size_ = 0;
};

}  // namespace stalloc
