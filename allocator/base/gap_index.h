// GapIndex: finds the long gaps between ranges that come and go on a line, the highest first, without a look at each.
//
// The line is cut into parts, 16 of which are a group, and so are 16 groups. Each has bounds: how long gaps were in it
// when it was last walked. Ranges that came since make them shorter, so that bounds hold; where one has gone since they
// are void, and a search walks the part again. Hence a range that comes costs nothing, one that goes a few stores, and
// a search what has gone since the last one.
//
// Who keeps the ranges is asked for them: last(lo, hi) is the last one that lies partly in [lo, hi), empty if none
// does. The line ends at 2^32 - 2. Not thread-safe; noexcept; memory from mmap, some 300 KB.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "allocator/base/mapped_array.h"
#include "allocator/base/range_set.h"

namespace stalloc {

class GapIndex {
 public:
  explicit GapIndex(std::uint32_t end) {
    std::uint32_t shift = static_cast<std::uint32_t>(std::bit_width(end / kParts | 1)) - 1;
    for (Level& level : levels_) {
      level = {shift, MappedArray<std::uint64_t>((end >> shift) + 1), MappedArray<Bounds>((end >> shift) + 1)};
      level.removed.Populate();
      level.bounds.Populate();
      shift += kGroupShift;
    }
  }

  // A range goes from [lo, hi), at a stamp; stamps ascend. REQUIRES: lo < hi, on the line.
  void Remove(std::uint32_t lo, std::uint32_t hi, std::uint64_t stamp) noexcept {
    std::uint32_t first = lo >> levels_.front().shift;
    std::uint32_t last = (hi - 1) >> levels_.front().shift;
    for (Level& level : levels_) {
      level.removed[last] = stamp;
      for (std::uint32_t part = first; part != last; ++part) level.removed[part] = stamp;
      first >>= kGroupShift;
      last >>= kGroupShift;
    }
  }
  // Nothing went from [lo, hi) after this stamp.
  [[nodiscard]] std::uint64_t LastRemoved(std::uint32_t lo, std::uint32_t hi) const noexcept {
    const auto& [shift, removed, bounds] = levels_.front();
    std::uint64_t last = 0;
    for (std::uint32_t at = lo >> shift; at <= (hi - 1) >> shift; ++at) last = std::max(last, removed[at]);
    return last;
  }

  // Calls visit(gap), descending, for the gaps below `end` that are `least` long or longer, as long as it says true.
  // `now`: a stamp that no range has gone after.
  template <typename Last, typename Visit>
  void ForEachDownwards(std::uint32_t end, std::uint32_t least, std::uint64_t now, Last&& last,
                        Visit&& visit) noexcept {
    if (end == 0) return;
    Search search{.end = end, .least = least, .now = now, .top = end};
    for (std::uint32_t group = ((end - 1) >> levels_.back().shift) + 1; group-- > 0;) {
      if (!Look(levels_.size() - 1, group, search, last, visit)) return;
    }
    (void)Close(0, search, last, visit);
  }

 private:
  // Or up to twice as many: 32 MiB each of the addresses that an arena has on a device of 140 GiB. More cost those who
  // remove ranges more than a search saves.
  static constexpr std::uint32_t kParts = 4096;
  static constexpr std::uint32_t kGroupShift = 4;

  // What of a part, or a group, lay below the first range, above the last and at most in one piece; and before which
  // stamp. Zero bytes are bounds that are void.
  struct Bounds {
    std::uint32_t below = 0;
    std::uint32_t above = 0;
    std::uint32_t longest = 0;
    std::uint64_t valid_before = 0;
  };
  struct Level {
    std::uint32_t shift = 0;
    MappedArray<std::uint64_t> removed;  // stamps
    MappedArray<Bounds> bounds;
  };
  struct Search {
    const std::uint32_t end;
    const std::uint32_t least;
    const std::uint64_t now;
    std::uint32_t top;  // of the gap that is being passed, or above it where that is not sure
    bool sure = true;
    IndexRange known = {};  // the last range that lies partly in [known_lo, known_hi)
    std::uint32_t known_lo = 0;
    std::uint32_t known_hi = 0;

    // `known` is the last range that lies partly in [lo, hi), or none does.
    [[nodiscard]] bool Knows(std::uint32_t lo, std::uint32_t hi) const noexcept {
      return known_lo <= lo && hi <= known_hi && (known.hi == 0 || known.lo < hi);
    }
  };

  // False when the search is over.
  template <typename Last, typename Visit>
  bool Look(std::size_t at_level, std::uint32_t index, Search& search, Last&& last, Visit&& visit) noexcept {
    Level& level = levels_[at_level];
    Bounds& bounds = level.bounds[index];
    const std::uint32_t lo = index << level.shift;
    const std::uint64_t whole_end = (std::uint64_t{index} + 1) << level.shift;
    const auto hi = static_cast<std::uint32_t>(std::min<std::uint64_t>(whole_end, search.end));
    if (level.removed[index] < bounds.valid_before) {
      const std::uint32_t passed = search.top - std::min(search.top, hi);
      if (std::max(bounds.longest, passed + bounds.above) < search.least) {
        if (bounds.above < whole_end - lo) search.top = std::min(search.top, lo + bounds.below);
        search.sure = false;
        return true;
      }
    }
    Bounds found;
    if (!(at_level == 0 ? Walk(lo, hi, search, found, last, visit)
                        : LookAtParts(at_level - 1, lo, hi, search, found, last, visit))) {
      return false;
    }
    found.valid_before = search.now + 1;
    if (hi == whole_end) bounds = found;
    return true;
  }

  template <typename Last, typename Visit>
  bool LookAtParts(std::size_t at_level, std::uint32_t lo, std::uint32_t hi, Search& search, Bounds& found, Last&& last,
                   Visit&& visit) noexcept {
    const auto& [shift, removed, parts] = levels_[at_level];
    bool is_free = true;
    const auto add = [&](const Bounds& bounds, bool part_is_free) {
      const std::uint32_t across = found.below + bounds.above;
      if (is_free) found.above = across;
      found.longest = std::max({found.longest, bounds.longest, across});
      found.below = part_is_free ? across : bounds.below;
      is_free = is_free && part_is_free;
    };
    for (std::uint32_t part = ((hi - 1) >> shift) + 1; part-- > lo >> shift;) {
      if (!Look(at_level, part, search, last, visit)) return false;
      add(parts[part], parts[part].above >> shift != 0);
      // Parts below that are known to lie in one range, or in one gap, are not looked at.
      const std::uint32_t at = part << shift;
      if (!search.Knows(lo, at)) continue;
      const bool in_gap = search.known.hi <= at;
      const std::uint32_t alike_lo = std::max(in_gap ? search.known.hi : search.known.lo, lo);
      const std::uint32_t lowest = (alike_lo + (1u << shift) - 1) >> shift;
      if (lowest >= part) continue;
      const std::uint32_t length = in_gap ? (part - lowest) << shift : 0;
      add({.below = length, .above = length, .longest = length}, in_gap);
      part = lowest;
    }
    return true;
  }

  template <typename Last, typename Visit>
  bool Walk(std::uint32_t lo, std::uint32_t hi, Search& search, Bounds& found, Last&& last, Visit&& visit) noexcept {
    std::uint32_t at = hi;
    while (at > lo) {
      const IndexRange range = LastIn(lo, at, search, last);
      const std::uint32_t piece = at - std::clamp(range.hi, lo, at);
      if (at == hi) found.above = piece;
      found.longest = std::max(found.longest, piece);
      if (range.hi == 0) {
        found.below = piece;
        return true;
      }
      if (!Close(range.hi, search, last, visit)) return false;
      search.top = at = range.lo;
      search.sure = true;
    }
    return true;
  }

  // Asks for more than that, so that ranges and gaps that are longer than parts are asked for once. REQUIRES: below all
  // that was asked for.
  template <typename Last>
  IndexRange LastIn(std::uint32_t lo, std::uint32_t hi, Search& search, Last&& last) noexcept {
    if (!search.Knows(lo, hi)) {
      search.known_lo = lo >> levels_.back().shift << levels_.back().shift;
      search.known_hi = hi;
      search.known = last(search.known_lo, hi);
    }
    return search.known.hi > lo ? search.known : IndexRange{};
  }

  // The gap that is being passed begins at `lo`.
  template <typename Last, typename Visit>
  bool Close(std::uint32_t lo, Search& search, Last&& last, Visit&& visit) noexcept {
    const auto is_short = [&] { return search.top < lo || search.top - lo < search.least; };
    while (!search.sure && !is_short()) {
      const IndexRange range = last(lo, search.top);
      search.sure = range.hi == 0;
      if (!search.sure) search.top = range.lo;
    }
    return is_short() || visit(IndexRange{lo, search.top});
  }

  std::array<Level, 3> levels_;  // parts, groups, groups of groups
};

}  // namespace stalloc
