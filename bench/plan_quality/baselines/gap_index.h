// GapIndex: blocks that have an offset, and the gaps that they leave to another block throughout its lifetimes. The
// baselines' own structure, so that they do not depend on the solvers that are held against them.
//
// A segment tree over the ticks at which blocks begin (two lifetimes meet if and only if one's begin lies in the
// other). A node keeps the addresses of the blocks that cover it, and of those alive anywhere in it, as sorted
// coalesced intervals: a query merges O(log n) of them. Bytes. Not thread-safe.
#pragma once

#include <cstddef>
#include <limits>
#include <vector>

#include "planner/packing/problem/problem.h"
#include "planner/packing/search/interval_list.h"

namespace stalloc::planner {

struct Gap {
  static constexpr Offset kOpen = std::numeric_limits<Offset>::max();

  Offset begin = 0;
  Offset end = kOpen;  // kOpen: nothing above
};

class GapIndex {
 public:
  explicit GapIndex(const Problem& problem);

  // Forgets the blocks that were inserted, keeps memory.
  void Clear();

  // REQUIRES: `block` is one of the problem's.
  void Insert(const Block& block, Offset offset);

  // Calls visit(gap) for the gaps that are free throughout the block's lifetimes, upwards, until it returns false. The
  // last one is open.
  template <typename Visit>
  void ForEachGap(const Block& block, Visit visit) {
    Gather(block);
    Gap gap;
    do {
      gap.begin = FirstFree(gap.end == Gap::kOpen ? 0 : gap.end);
      gap.end = NextOccupied();
    } while (visit(gap) && gap.end != Gap::kOpen);
  }

 private:
  struct Node {
    IntervalList cover;
    IntervalList touch;
  };
  struct Range {  // of positions in begins_, half-open
    std::size_t begin;
    std::size_t end;
  };
  struct Cursor {  // the intervals of one list that end above the address the walk has come to
    const IntervalList::Interval* next;
    const IntervalList::Interval* end;
  };

  [[nodiscard]] Range Positions(const Lifetime& life) const;
  [[nodiscard]] Range Root() const { return {0, leaves_}; }
  void InsertInto(std::size_t node, Range of_node, Range range, const IntervalList::Interval& addresses);
  void Gather(const Block& block);
  void GatherFrom(std::size_t node, Range of_node, Range range);
  void AddCursor(const IntervalList& list);
  [[nodiscard]] Offset FirstFree(Offset address);
  [[nodiscard]] Offset NextOccupied() const;

  std::vector<Tick> begins_;  // sorted, each once
  std::size_t leaves_;        // a power of two
  std::vector<Node> nodes_;   // the root is 1, the children of n are 2 n and 2 n + 1
  std::vector<Cursor> cursors_;
};

}  // namespace stalloc::planner
