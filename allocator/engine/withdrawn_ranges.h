// WithdrawnRanges: parts of the arena whose memory went back to the device; nothing is placed there.
//
// Sorted, disjoint, looked up by bisection; empty in all runs that never ran out of memory, which is the one question
// that a request asks. Touching ranges are one, so that a search steps over an arena that went back chunk by chunk at
// once. Offsets in granules of kBlockAlignment bytes. Not thread-safe; noexcept; memory from mmap, taken once.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "allocator/base/mapped_array.h"

namespace stalloc {

class WithdrawnRanges {
 public:
  static constexpr std::size_t kMost = 8192;  // an arena of 4 TiB in chunks of 1 GiB, every second one

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

  // False, and nothing changes, when some of it is withdrawn already, or there are too many.
  bool Add(std::uint32_t lo, std::uint32_t hi) noexcept {
    Range* const next = Begin() + (FirstEndingAfter(lo) - Begin());
    if (next != End() && next->lo < hi) return false;
    Range* const first = next != Begin() && (next - 1)->hi == lo ? next - 1 : next;
    Range* const last = next != End() && next->lo == hi ? next + 1 : next;
    if (first == last && size_ == kMost) return false;
    const Range joined{first != next ? first->lo : lo, last != next ? next->hi : hi};
    Replace(first, last, std::span(&joined, 1));
    return true;
  }

  // Nothing of [lo, hi) is withdrawn any more. Where that would make two of one range and there are too many, the range
  // stays as it is: its bytes are missed, not lost.
  void Remove(std::uint32_t lo, std::uint32_t hi) noexcept {
    Range* const first = Begin() + (FirstEndingAfter(lo) - Begin());
    Range* last = first;
    while (last != End() && last->lo < hi) ++last;
    if (first == last) return;
    Range rest[2];
    std::size_t count = 0;
    if (first->lo < lo) rest[count++] = {first->lo, lo};
    if ((last - 1)->hi > hi) rest[count++] = {hi, (last - 1)->hi};
    if (count == 2 && last - first == 1 && size_ == kMost) return;
    Replace(first, last, std::span(rest, count));
  }

 private:
  [[nodiscard]] Range* Begin() noexcept { return ranges_.data(); }
  [[nodiscard]] const Range* Begin() const noexcept { return ranges_.data(); }
  [[nodiscard]] const Range* End() const noexcept { return ranges_.data() + size_; }
  [[nodiscard]] const Range* FirstEndingAfter(std::uint32_t lo) const noexcept {
    return std::partition_point(Begin(), End(), [lo](const Range& range) { return range.hi <= lo; });
  }

  // Puts `others` in the place of [first, last).
  void Replace(Range* first, const Range* last, std::span<const Range> others) noexcept {
    const auto removed = static_cast<std::size_t>(last - first);
    std::memmove(first + others.size(), last, static_cast<std::size_t>(End() - last) * sizeof(Range));
    std::copy(others.begin(), others.end(), first);
    size_ = size_ - removed + others.size();
  }

  MappedArray<Range> ranges_{kMost};
  std::size_t size_ = 0;
};

}  // namespace stalloc
