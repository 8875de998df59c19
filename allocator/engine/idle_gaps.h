// IdleGaps: for each entry of a plan, the addresses that no slot uses from that entry until the entry's block is
// expected to be freed. Where a block goes that the plan has no place for.
//
// Note [Gaps]
//   address ^  |#######|      |######     A request at p whose block is expected to go at q fits into G1 or G2. G3 is
//           |  |####[=== G2 ===]##|       free now, but a slot takes it before q. The range above the highest slot in
//           |  [p===== G1 =====q]         [p, q) is always the last gap: it goes on above the arena's height, where no
//           |  |##[= G3 =]########|       slot ever is.
//           +--------------------------> requests of the plan
//
// Found for all entries at once by one sweep backwards over the plan: an ordered list of address ranges says of each
// when a slot uses it next, so that a range in use is one that is used at once. Time is counted in requests, along the
// prologue and three rounds of the cycle: gaps of the cycle are those of its second round, with a round before it whose
// blocks may still live and one behind it.
//
// A request that no entry explains is mostly one more of the kind that varies around it: one more expert with tokens.
// Its block is expected to live as long as the longest-lived of them. Where nothing varies nobody knows: such a block
// goes above all slots, where it is in nobody's way. Too long an expectation costs less than too short a one: a
// weight's gradient, say, that is put where an activation would go is in the way of everything until the optimizer.
//
// What is live beyond the plan is not known here: the caller checks (allocator/engine/dynamic_space.h).
//
// Built when a plan is loaded, O(entries x address ranges); read-only and thread-safe afterwards. Offsets and lengths
// in granules of kBlockAlignment bytes.
#pragma once

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <vector>

#include "proto/model/plan.h"

namespace stalloc {

class IdleGaps {
 public:
  struct Gap {
    std::uint32_t lo = 0;
    std::uint32_t hi = 0;
  };
  // Where a block may go that is expected to be freed when some entry's is, in nobody's way. Ascending; the last one
  // ends at the limit. Empty: not known.
  using Window = std::span<const Gap>;
  // The arena's addresses end at `limit`. Entries of fewer than `least` granules have no gaps; of those that vary, such
  // of far fewer.
  IdleGaps(const DevicePlan& plan, std::uint32_t limit, std::uint32_t least);

  // There is nothing to ask for: of a plan without scripts, which is what an engine without a dynamic space has.
  [[nodiscard]] bool empty() const noexcept { return script_begins_.size() <= 1; }

  // Of an entry; scripts are counted through prologue and cycle. No gaps: not known.
  [[nodiscard]] Window Of(std::uint32_t script, std::int32_t entry) const noexcept {
    return idle_.Of(script_begins_[script] + static_cast<std::size_t>(entry));
  }
  // Of the longest-lived entry that varies among those around `entry`, which may be one past the script's end; Above()
  // if none varies.
  [[nodiscard]] Window Around(std::uint32_t script, std::int32_t entry) const noexcept {
    return VariesAround(script, entry) ? idle_.Of(around_[AtOrLast(script, entry)]) : Above();
  }
  [[nodiscard]] bool VariesAround(std::uint32_t script, std::int32_t entry) const noexcept {
    return !IsEmpty(script) && around_[AtOrLast(script, entry)] != kNone;
  }
  // Something varies around most entries of the plan.
  [[nodiscard]] bool VariesMostly() const noexcept { return varies_mostly_; }
  // Above all slots.
  [[nodiscard]] Window Above() const noexcept { return {&above_, 1}; }

  static constexpr std::uint64_t kForever = ~std::uint64_t{0};
  // Requests from an entry to its block's free; kForever if it stays for good.
  [[nodiscard]] std::uint64_t LifeOf(std::uint32_t script, std::int32_t entry) const noexcept {
    return spans_[script_begins_[script] + static_cast<std::size_t>(entry)].life();
  }
  // From `entry` to the last free of the nearest entries of this size, before and behind it; kForever: there is none.
  [[nodiscard]] std::uint64_t LifeOfSize(std::uint32_t script, std::int32_t entry,
                                         std::uint32_t granules) const noexcept {
    const std::size_t longest = LongestOfSize(script, entry, granules);
    return longest == kNone ? kForever : Remaining(longest, script, entry);
  }
  // From `entry` to the free of another one's block; 0 if that is over.
  [[nodiscard]] std::uint64_t LifeLeft(std::uint32_t script, std::int32_t other, std::int32_t entry) const noexcept {
    return Remaining(script_begins_[script] + static_cast<std::size_t>(other), script, entry);
  }
  // Calls visit(entry) for entries of this size around `entry`.
  template <typename Visit>
  void ForEachOfSize(std::uint32_t script, std::int32_t entry, std::uint32_t granules, Visit&& visit) const noexcept {
    const auto behind = FirstOfSize(script, entry, granules);
    int seen = 0;
    for (auto at = behind; at != by_size_.end() && IsNear(*at, script, entry, granules) && seen < kMostOfSize; ++at) {
      visit(static_cast<std::int32_t>(at->entry - script_begins_[script]));
      ++seen;
    }
    seen = 0;
    for (auto at = behind; at != by_size_.begin() && IsNear(*std::prev(at), script, entry, granules); --at) {
      if (seen++ == kMostOfSize) break;
      visit(static_cast<std::int32_t>(std::prev(at)->entry - script_begins_[script]));
    }
  }

 private:
  // The gaps of all entries, those of each in a row.
  struct Lists {
    struct List {
      std::size_t first = 0;
      std::uint32_t count = 0;
    };
    std::vector<List> lists;  // by entry
    std::vector<Gap> gaps;
    [[nodiscard]] bool IsEmpty(std::size_t entry) const noexcept { return lists[entry].count == 0; }
    [[nodiscard]] Window Of(std::size_t entry) const noexcept {
      return {gaps.data() + lists[entry].first, lists[entry].count};
    }
  };
  struct Span {
    std::uint64_t begin = 0;  // on the axis, as the end
    std::uint64_t end = 0;
    [[nodiscard]] std::uint64_t life() const noexcept { return end == kForever ? kForever : end - begin; }
  };
  [[nodiscard]] std::uint64_t Remaining(std::size_t other, std::uint32_t script, std::int32_t entry) const noexcept {
    const std::uint64_t now = spans_[AtOrLast(script, entry)].begin;
    const std::uint64_t end = spans_[other].end;
    return end == kForever ? kForever : end - std::min(end, now);
  }

  static constexpr std::size_t kNone = ~std::size_t{0};
  // How far to look for entries of one size, to a side.
  static constexpr std::uint32_t kNear = 512;  // entries
  static constexpr int kMostOfSize = 24;       // of that size

  struct Sized {
    std::uint32_t granules = 0;
    std::uint32_t entry = 0;  // counted through prologue and cycle
    auto operator<=>(const Sized&) const = default;
  };
  using SizedIterator = std::vector<Sized>::const_iterator;

  [[nodiscard]] bool IsEmpty(std::uint32_t script) const noexcept {
    return script_begins_[script] == script_begins_[script + 1];
  }
  // REQUIRES: the script is not empty.
  [[nodiscard]] std::size_t AtOrLast(std::uint32_t script, std::int32_t entry) const noexcept {
    return std::min(script_begins_[script] + static_cast<std::size_t>(entry), script_begins_[script + 1] - 1);
  }
  [[nodiscard]] Lists FindGaps(const DevicePlan& plan, std::uint32_t limit, std::uint32_t least);
  [[nodiscard]] static Lists InOrderOfUse(const DevicePlan& plan, const Lists& lists);
  void FindNeighbours(const Script& script, std::size_t begin);
  void SortBySize(const DevicePlan& plan);
  [[nodiscard]] SizedIterator FirstOfSize(std::uint32_t script, std::int32_t entry,
                                          std::uint32_t granules) const noexcept {
    const auto at = static_cast<std::uint32_t>(script_begins_[script] + static_cast<std::size_t>(entry));
    return std::lower_bound(by_size_.begin(), by_size_.end(), Sized{granules, at});
  }
  [[nodiscard]] bool IsNear(const Sized& found, std::uint32_t script, std::int32_t entry,
                            std::uint32_t granules) const noexcept {
    const std::size_t at = script_begins_[script] + static_cast<std::size_t>(entry);
    const bool inside = found.entry >= script_begins_[script] && found.entry < script_begins_[script + 1];
    return found.granules == granules && inside && (found.entry > at ? found.entry - at : at - found.entry) <= kNear;
  }
  [[nodiscard]] std::size_t LongestOfSize(std::uint32_t script, std::int32_t entry,
                                          std::uint32_t granules) const noexcept;

  std::vector<std::size_t> script_begins_;  // and one more: the number of entries
  std::vector<Span> spans_;                 // by entry
  std::vector<std::size_t> around_;         // by entry
  std::vector<Sized> by_size_;              // ascending; those of one size that have gaps
  Lists idle_;
  Gap above_;
  bool varies_mostly_ = false;
};

}  // namespace stalloc
