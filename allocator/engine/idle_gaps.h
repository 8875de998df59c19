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
// Its block is expected to live as long as the longest-lived of them; where nothing varies, of all around it.
//
// What is live beyond the plan is not known here: the caller checks (allocator/engine/dynamic_space.h).
//
// Built when a plan is loaded, O(entries x address ranges); read-only and thread-safe afterwards. Offsets and lengths
// in granules of kBlockAlignment bytes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
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
  // Ascending; the last one ends at the limit.
  using Window = std::span<const Gap>;

  // The arena's addresses end at `limit`. Entries of fewer than `least` granules have no gaps.
  IdleGaps(const DevicePlan& plan, std::uint32_t limit, std::uint32_t least);

  // Of an entry; scripts are counted through prologue and cycle. No gaps: not known.
  [[nodiscard]] Window Of(std::uint32_t script, std::int32_t entry) const noexcept {
    return WindowOf(script_begins_[script] + static_cast<std::size_t>(entry));
  }
  // Of the longest-lived entry that varies among those around `entry`, which may be one past the script's end; if none
  // varies, of the longest-lived one.
  [[nodiscard]] Window Around(std::uint32_t script, std::int32_t entry) const noexcept {
    const std::size_t begin = script_begins_[script];
    const std::size_t at = std::min(begin + static_cast<std::size_t>(entry), script_begins_[script + 1] - 1);
    return at < begin || around_[at] == kNone ? Window{} : WindowOf(around_[at]);
  }

 private:
  struct Span {
    std::size_t first = 0;
    std::uint32_t count = 0;
  };
  static constexpr std::size_t kNone = ~std::size_t{0};

  [[nodiscard]] Window WindowOf(std::size_t entry) const noexcept {
    return {gaps_.data() + spans_[entry].first, spans_[entry].count};
  }
  void FindNeighbours(const Script& script, std::size_t begin);

  std::vector<std::size_t> script_begins_;  // and one more: the number of entries
  std::vector<Span> spans_;                 // by entry
  std::vector<std::size_t> around_;         // by entry
  std::vector<Gap> gaps_;
};

}  // namespace stalloc
