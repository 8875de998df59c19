// GranuleRanges: disjoint address ranges, ascending; ranges that touch are one. Of what blocks beside the slots occupy,
// so that a search for room looks at ranges and not at blocks, and of what was withdrawn from the arena.
//
// A sorted array: looked up by bisection, changed by moving what is behind. Offsets in granules. Not thread-safe;
// noexcept; memory from mmap, taken once.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "allocator/base/mapped_array.h"
#include "allocator/engine/plan_reading.h"

namespace stalloc {

class GranuleRanges {
 public:
  using Range = GranuleRange;

  // There are at most so many.
  explicit GranuleRanges(std::size_t most) noexcept : most_(most), ranges_(most + 2) { *End() = {kEnd, kEnd}; }

  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  // There is room for one more range anywhere, and for cutting one in two.
  [[nodiscard]] bool CanChange() const noexcept { return size_ + 1 < most_; }

  // Some granule of [lo, hi) is in a range. REQUIRES: lo < hi.
  [[nodiscard]] bool Touches(Granules lo, Granules hi) const noexcept { return FirstEndingAfter(lo)->lo < hi; }
  // The last one that lies partly in [lo, hi), null if none does. REQUIRES: lo < hi.
  [[nodiscard]] const Range* LastIn(Granules lo, Granules hi) const noexcept {
    const Range* behind = std::partition_point(Begin(), End(), [hi](const Range& range) { return range.lo < hi; });
    return behind != Begin() && (behind - 1)->hi > lo ? behind - 1 : nullptr;
  }
  // What lies between them, ascending and without an end: from `hi` of one to `lo` of the next, first what is below all
  // of them, which may be empty. Valid until the next change.
  [[nodiscard]] const Range* Between() const noexcept { return ranges_.data(); }

  // False, and nothing changes, when some of it is in a range already, or there are too many.
  bool Add(Granules lo, Granules hi) noexcept {
    Range* const next = Begin() + (FirstEndingAfter(lo) - Begin());
    if (next->lo < hi) return false;
    Range* const first = next != Begin() && (next - 1)->hi == lo ? next - 1 : next;
    Range* const last = next->lo == hi ? next + 1 : next;
    if (first == last && size_ == most_) return false;
    const Range joined{first != next ? first->lo : lo, last != next ? next->hi : hi};
    Replace(first, last, std::span(&joined, 1));
    return true;
  }

  // Nothing of [lo, hi) is in a range any more. Where that would make two of one and there are too many, that one stays
  // as it is: its bytes are missed, not lost.
  void Remove(Granules lo, Granules hi) noexcept {
    Range* const first = Begin() + (FirstEndingAfter(lo) - Begin());
    Range* last = first;
    while (last->lo < hi) ++last;
    if (first == last) return;
    Range rest[2];
    std::size_t count = 0;
    if (first->lo < lo) rest[count++] = {first->lo, lo};
    if ((last - 1)->hi > hi) rest[count++] = {hi, (last - 1)->hi};
    if (count == 2 && last - first == 1 && size_ == most_) return;
    Replace(first, last, std::span(rest, count));
  }

 private:
  static constexpr Granules kEnd = 0xffffffffu;  // no granule is there

  [[nodiscard]] Range* Begin() noexcept { return ranges_.data() + 1; }
  [[nodiscard]] const Range* Begin() const noexcept { return ranges_.data() + 1; }
  [[nodiscard]] Range* End() noexcept { return Begin() + size_; }
  [[nodiscard]] const Range* End() const noexcept { return Begin() + size_; }
  [[nodiscard]] const Range* FirstEndingAfter(Granules lo) const noexcept {
    return std::partition_point(Begin(), End(), [lo](const Range& range) { return range.hi <= lo; });
  }

  // Puts `others` in the place of [first, last).
  void Replace(Range* first, const Range* last, std::span<const Range> others) noexcept {
    const auto removed = static_cast<std::size_t>(last - first);
    if (removed != others.size()) {
      std::memmove(first + others.size(), last, static_cast<std::size_t>(End() + 1 - last) * sizeof(Range));
    }
    std::copy(others.begin(), others.end(), first);
    size_ = size_ - removed + others.size();
  }

  const std::size_t most_;
  MappedArray<Range> ranges_;  // between two empty ones, at 0 and at kEnd
  std::size_t size_ = 0;
};

}  // namespace stalloc
