// WithdrawnRanges: parts of the arena whose memory went back to the device; nothing is placed there.
//
// Sorted, disjoint, looked up by bisection; empty in all runs that never ran out of memory, which is the one question
// that a request asks. Offsets in granules of kBlockAlignment bytes. Not thread-safe; noexcept; memory from mmap, taken
// once.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "allocator/base/mapped_array.h"

namespace stalloc {

class WithdrawnRanges {
 public:
  static constexpr std::size_t kMost = 8192;  // an arena of 2 TiB in chunks of 256 MiB

  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }

  // Some granule of [lo, hi) is withdrawn. REQUIRES: lo < hi.
  [[nodiscard]] bool Touches(std::uint32_t lo, std::uint32_t hi) const noexcept {
    const Range* next = FirstEndingAfter(lo);
    return next != End() && next->lo < hi;
  }

  struct Range {
    std::uint32_t lo = 0;
    std::uint32_t hi = 0;
  };
  // The last one that lies partly in [lo, hi), null if none does. REQUIRES: lo < hi.
  [[nodiscard]] const Range* LastIn(std::uint32_t lo, std::uint32_t hi) const noexcept {
    const Range* behind = std::partition_point(Begin(), End(), [hi](const Range& range) { return range.lo < hi; });
    return behind != Begin() && (behind - 1)->hi > lo ? behind - 1 : nullptr;
  }

  // False, and nothing changes, when it touches a range that is withdrawn already, or there are too many.
  bool Add(std::uint32_t lo, std::uint32_t hi) noexcept {
    if (size_ == kMost || Touches(lo, hi)) return false;
    Range* const at = Begin() + (FirstEndingAfter(lo) - Begin());
    std::copy_backward(at, Begin() + size_, Begin() + size_ + 1);
    *at = {lo, hi};
    ++size_;
    return true;
  }

  // Forgets every range that touches [lo, hi). REQUIRES: those lie inside it.
  void Remove(std::uint32_t lo, std::uint32_t hi) noexcept {
    Range* const first = Begin() + (FirstEndingAfter(lo) - Begin());
    Range* last = first;
    while (last != End() && last->lo < hi) ++last;
    std::copy(last, Begin() + size_, first);
    size_ -= static_cast<std::size_t>(last - first);
  }

 private:
  [[nodiscard]] Range* Begin() noexcept { return ranges_.data(); }
  [[nodiscard]] const Range* Begin() const noexcept { return ranges_.data(); }
  [[nodiscard]] const Range* End() const noexcept { return ranges_.data() + size_; }
  [[nodiscard]] const Range* FirstEndingAfter(std::uint32_t lo) const noexcept {
    return std::partition_point(Begin(), End(), [lo](const Range& range) { return range.hi <= lo; });
  }

  MappedArray<Range> ranges_{kMost};
  std::size_t size_ = 0;
};

}  // namespace stalloc
