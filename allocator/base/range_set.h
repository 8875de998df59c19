// RangeSet: disjoint ranges of integers, ascending; ranges that touch are one.
//
// A sorted array: looked up by bisection, changed by moving what is after. Not thread-safe; noexcept; memory from
// mmap, taken once.
#pragma once

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "allocator/base/mapped_array.h"

namespace stalloc {

struct IndexRange {  // [lo, hi)
  std::uint32_t lo = 0;
  std::uint32_t hi = 0;
  auto operator<=>(const IndexRange&) const = default;
};

// What lies next to these below `limit`, ascending; they may overlap.
[[nodiscard]] inline std::vector<IndexRange> Outside(std::vector<IndexRange> used, std::uint32_t limit) {
  std::ranges::sort(used, {}, &IndexRange::lo);
  std::vector<IndexRange> outside;
  std::uint32_t at = 0;
  for (const IndexRange& range : used) {
    if (range.lo > at) outside.push_back({at, range.lo});
    at = std::max(at, range.hi);
  }
  if (at < limit) outside.push_back({at, limit});
  return outside;
}

class RangeSet {
 public:
  // There are at most so many.
  explicit RangeSet(std::size_t most) noexcept : most_(most), ranges_(most + 2) { *End() = {kEnd, kEnd}; }

  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  // There is space for one more range anywhere, and for cutting one in two.
  [[nodiscard]] bool CanChange() const noexcept { return size_ + 1 < most_; }

  // Something of [lo, hi) is in a range. REQUIRES: lo < hi.
  [[nodiscard]] bool Touches(std::uint32_t lo, std::uint32_t hi) const noexcept {
    return FirstEndingAfter(lo)->lo < hi;
  }
  // The last one that lies partly in [lo, hi), null if none does. REQUIRES: lo < hi.
  [[nodiscard]] const IndexRange* LastIn(std::uint32_t lo, std::uint32_t hi) const noexcept {
    const IndexRange* after =
        std::partition_point(Begin(), End(), [hi](const IndexRange& range) { return range.lo < hi; });
    return after != Begin() && (after - 1)->hi > lo ? after - 1 : nullptr;
  }
  // What lies between them, ascending and without an end: from `hi` of one to `lo` of the next. The first one reaches
  // above `from`, or is empty; below all of them there is one, too. Valid until the next change.
  [[nodiscard]] const IndexRange* BetweenFrom(std::uint32_t from) const noexcept { return FirstEndingAfter(from) - 1; }

  // Calls visit(lo, hi), ascending, for what lies between them in the parts, which ascend, below `end`, and is `least`
  // long or longer, as long as it says true. REQUIRES: least > 0.
  template <typename Visit>
  void ForEachBetween(std::span<const IndexRange> parts, std::uint32_t end, std::uint32_t least,
                      Visit&& visit) const noexcept {
    const IndexRange* below = BetweenFrom(parts.front().lo);
    for (const IndexRange& part : parts) {
      if (part.hi < std::uint64_t{part.lo} + least) continue;
      while (below[1].lo <= part.lo) ++below;
      for (;; ++below) {
        const std::uint32_t lo = std::max(part.lo, below[0].hi);
        const std::uint32_t hi = std::min(below[1].lo, std::min(part.hi, end));
        if (hi >= std::uint64_t{lo} + least && !visit(lo, hi)) return;
        if (below[1].lo >= part.hi) break;  // it may go on after the part
      }
    }
  }
  // Calls visit(gap), descending, for what lies between them below `end` and is `least` long or longer, as long as it
  // says true. REQUIRES: least > 0.
  template <typename Visit>
  void ForEachBetweenDownwards(std::uint32_t end, std::uint32_t least, Visit&& visit) const noexcept {
    const IndexRange* below =
        std::partition_point(Begin(), End(), [end](const IndexRange& range) { return range.lo < end; }) - 1;
    for (;; end = (below--)->lo) {
      if (end >= std::uint64_t{below->hi} + least && !visit(IndexRange{below->hi, end})) return;
      if (below < Begin()) return;
      // Mostly many in a row are too short.
      const auto is_long = [&](std::ptrdiff_t i) { return below[-i].lo - below[-i - 1].hi >= least ? 1 : 0; };
      while (below - Begin() >= 4 && (is_long(0) | is_long(1) | is_long(2) | is_long(3)) == 0) below -= 4;
    }
  }

  // Holds, instead, what for_each(visit) calls visit(lo, hi) with, descending: the first ones, where there are too
  // many.
  template <typename ForEach>
  void Assign(ForEach&& for_each) noexcept {
    size_ = 0;
    for_each([this](std::uint32_t lo, std::uint32_t hi) {
      if (size_ > 0 && End()[-1].lo == hi) {
        End()[-1].lo = lo;
      } else if (size_ < most_) {
        Begin()[size_++] = {lo, hi};
      }
    });
    std::reverse(Begin(), End());
    *End() = {kEnd, kEnd};
  }

  // False, and nothing changes, when some of it is in a range already, or there are too many.
  bool Add(std::uint32_t lo, std::uint32_t hi) noexcept {
    IndexRange* const next = Begin() + (FirstEndingAfter(lo) - Begin());
    if (next->lo < hi) return false;
    IndexRange* const first = next != Begin() && (next - 1)->hi == lo ? next - 1 : next;
    IndexRange* const last = next->lo == hi ? next + 1 : next;
    if (first == last && size_ == most_) return false;
    const IndexRange joined{first != next ? first->lo : lo, last != next ? next->hi : hi};
    Replace(first, last, std::span(&joined, 1));
    return true;
  }

  // Nothing of [lo, hi) is in a range any more. Where that would make two of one and there are too many, that one stays
  // as it is.
  void Remove(std::uint32_t lo, std::uint32_t hi) noexcept {
    IndexRange* const first = Begin() + (FirstEndingAfter(lo) - Begin());
    IndexRange* last = first;
    while (last->lo < hi) ++last;
    if (first == last) return;
    IndexRange rest[2];
    std::size_t count = 0;
    if (first->lo < lo) rest[count++] = {first->lo, lo};
    if ((last - 1)->hi > hi) rest[count++] = {hi, (last - 1)->hi};
    if (count == 2 && last - first == 1 && size_ == most_) return;
    Replace(first, last, std::span(rest, count));
  }

 private:
  static constexpr std::uint32_t kEnd = 0xffffffffu;  // in no range

  [[nodiscard]] IndexRange* Begin() noexcept { return ranges_.data() + 1; }
  [[nodiscard]] const IndexRange* Begin() const noexcept { return ranges_.data() + 1; }
  [[nodiscard]] IndexRange* End() noexcept { return Begin() + size_; }
  [[nodiscard]] const IndexRange* End() const noexcept { return Begin() + size_; }
  [[nodiscard]] const IndexRange* FirstEndingAfter(std::uint32_t lo) const noexcept {
    return std::partition_point(Begin(), End(), [lo](const IndexRange& range) { return range.hi <= lo; });
  }

  // Puts `others` in the place of [first, last).
  void Replace(IndexRange* first, const IndexRange* last, std::span<const IndexRange> others) noexcept {
    const auto removed = static_cast<std::size_t>(last - first);
    if (removed != others.size()) {
      std::memmove(first + others.size(), last, static_cast<std::size_t>(End() + 1 - last) * sizeof(IndexRange));
    }
    std::copy(others.begin(), others.end(), first);
    size_ = size_ - removed + others.size();
  }

  const std::size_t most_;
  MappedArray<IndexRange> ranges_;  // between two empty ones, at 0 and at kEnd
  std::size_t size_ = 0;
};

}  // namespace stalloc
