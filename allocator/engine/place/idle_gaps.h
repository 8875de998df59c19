// IdleGaps: for each entry of a plan, the addresses that no slot uses from that entry until the entry's block is
// expected to be freed. It chooses the place of a block that the plan has no slot for (details.md, Space without a
// slot).
//
// Time is counted in requests, along the prologue and three rounds of the cycle; the cycle's gaps are those of its
// second round. What is live beyond the plan is not known here: the caller checks (dynamic_space.h).
//
// Built when a plan is loaded, O(entries x address ranges); read-only and thread-safe afterwards. In granules.
#pragma once

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "allocator/engine/bytes/plan_reading.h"
#include "allocator/engine/place/tuning.h"
#include "proto/model/plan.h"

namespace stalloc {

class IdleGaps {
 public:
  using Gap = GranuleRange;
  // Where a block may go that is expected to be freed when some entry's is, in nobody's way. Ascending; the last one
  // ends at the limit. Empty: not known.
  using Window = std::span<const Gap>;
  static constexpr std::uint64_t kForever = ~std::uint64_t{0};

  // The arena's addresses end at `limit`. Entries of fewer than `least` granules have no gaps; of those that vary, such
  // of far fewer.
  IdleGaps(const DevicePlan& plan, Granules limit, Granules least);

  // For an entry; scripts are counted through prologue and cycle. No gaps: not known.
  [[nodiscard]] Window Of(std::uint32_t script, std::int32_t entry) const noexcept {
    return OfNumber(Number(script, entry));
  }
  // For the longest-lived entry that varies among those around `entry`, which may be one past the script's end; Above()
  // if none varies.
  [[nodiscard]] Window Around(std::uint32_t script, std::int32_t entry) const noexcept {
    if (script_begins_[script] == script_begins_[script + 1]) return Above();
    const std::size_t around = around_[AtOrLast(script, entry)];
    return around != kNone ? OfNumber(around) : Above();
  }
  // Something varies around most entries of the plan.
  [[nodiscard]] bool VariesMostly() const noexcept {
    return 2 * std::ranges::count(around_, kNone) < std::ssize(around_);
  }
  // Above all slots.
  [[nodiscard]] Window Above() const noexcept { return {&above_, 1}; }

  // Requests from `entry`, or the script's last one, to the free of its own block; kForever if it stays for good.
  // REQUIRES: the script is not empty.
  [[nodiscard]] std::uint64_t LifeOf(std::uint32_t script, std::int32_t entry) const noexcept {
    return LifeLeft(script, entry, spans_[AtOrLast(script, entry)].end);
  }
  // Calls visit(other, left) for the nearest entries of this size, so many from `entry` on or before it. `left`:
  // requests from `entry` to the free of the other's block, 0 if that is over.
  enum class Side : std::uint8_t { kBefore, kFrom };
  template <typename Visit>
  void ForEachOfSize(Side side, std::uint32_t script, std::int32_t entry, Granules granules,
                     Visit&& visit) const noexcept {
    const std::size_t number = Number(script, entry);
    const std::size_t lowest =
        std::max<std::size_t>(number - std::min<std::size_t>(number, tuning::kNearOfSize), script_begins_[script]);
    const std::size_t end = std::min<std::size_t>(number + tuning::kNearOfSize + 1, script_begins_[script + 1]);
    auto at = std::ranges::lower_bound(by_size_, Sized{granules, static_cast<std::uint32_t>(number), 0});
    const auto last = side == Side::kFrom ? by_size_.end() : by_size_.begin();
    for (int most = tuning::kMostOfSize; most > 0 && at != last; --most) {
      const Sized& found = side == Side::kFrom ? *at++ : *--at;
      if (found.granules != granules || found.entry < lowest || found.entry >= end) return;
      visit(static_cast<std::int32_t>(found.entry - script_begins_[script]), LifeLeft(script, entry, found.end));
    }
  }

 private:
  static constexpr std::size_t kNone = ~std::size_t{0};

  struct Span {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
  };
  struct List {  // in gaps_
    std::size_t first = 0;
    std::uint32_t count = 0;
  };
  struct Sized {
    Granules granules = 0;
    std::uint32_t entry = 0;  // its number
    std::uint64_t end = 0;    // of its span
    auto operator<=>(const Sized&) const = default;
  };

  // Entries are counted through prologue and cycle.
  [[nodiscard]] std::size_t Number(std::uint32_t script, std::int32_t entry) const noexcept {
    return std::size_t{script_begins_[script]} + static_cast<std::size_t>(entry);
  }
  // REQUIRES: the script is not empty.
  [[nodiscard]] std::size_t AtOrLast(std::uint32_t script, std::int32_t entry) const noexcept {
    return std::min<std::size_t>(Number(script, entry), script_begins_[script + 1] - 1);
  }
  [[nodiscard]] std::uint64_t LifeLeft(std::uint32_t script, std::int32_t entry, std::uint64_t end) const noexcept {
    return end == kForever ? kForever : end - std::min(end, spans_[AtOrLast(script, entry)].begin);
  }
  [[nodiscard]] Window OfNumber(std::size_t number) const noexcept {
    return {gaps_.data() + lists_[number].first, lists_[number].count};
  }
  void FindNeighbours(const std::vector<const Entry*>& entries, std::size_t begin, std::size_t end);

  const std::vector<std::uint32_t> script_begins_;  // and one more: the number of entries
  std::vector<Span> spans_;                         // by entry, as the next two
  std::vector<std::size_t> around_;
  std::vector<List> lists_;
  std::vector<Gap> gaps_;       // those of an entry in a row
  std::vector<Sized> by_size_;  // ascending; those of one size that have gaps
  Gap above_;
};

// For what is requested in a fence, of which nobody knows when it will be freed (details.md, Fences): the addresses
// below `limit` that all iterations of the cycle use late, or not at all, what is used last first; none that are empty.
[[nodiscard]] std::vector<std::vector<GranuleRange>> LateRooms(const DevicePlan& plan, Granules limit);

// When the plan next needs each part of the arena: the memory that is needed last is lent first. A part is needed
// when an entry is due whose slot has bytes in it. O(entries x parts of a slot). Sizes are bytes.
class SlotUses {
 public:
  static constexpr std::uint64_t kNever = IdleGaps::kForever;

  // Parts of `unit` bytes each, from the arena's base up to the plan's height.
  SlotUses(const DevicePlan& plan, Bytes unit);

  // Requests from `now` (an entry, counted through prologue and cycle) until a slot in a part is due: 0 if now.
  [[nodiscard]] std::uint64_t UntilDue(std::size_t part, std::uint64_t now) const noexcept;
  [[nodiscard]] std::uint64_t cycle_begin() const noexcept { return cycle_; }
  [[nodiscard]] std::uint64_t cycle_length() const noexcept { return end_ - cycle_; }

 private:
  std::vector<std::vector<std::uint32_t>> dues_;  // by part: entries, ascending
  std::uint64_t cycle_ = 0;                       // the first entry of the cycle
  std::uint64_t end_ = 0;                         // of the cycle
};

}  // namespace stalloc
