// FitTree: which addresses are occupied when, and the lowest free address for a span of time; no conflict graph.
//
// A segment tree over positions. A span splits into O(log n) canonical nodes. Each node keeps two interval lists:
//   cover  addresses of blocks for which the node is canonical: occupied in the whole node;
//   touch  addresses of blocks that are alive anywhere in the node (cover included).
//
//             [ cover | touch ]              a query for the span ====== reads `touch` of its canonical nodes (C)
//             /               \              and `cover` of every node above one (A): O(log n) sorted lists.
//        A [    |    ]      A [    |    ]
//         /       \          /      \         The lowest address that is free in all of them is found by leapfrogging:
//       [ ]      C[ ]      C[ ]     [ ]       a list that objects moves the candidate to the end of its obstacle.
//                 =============
//
// Not thread-safe: one tree per thread. Bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "planner/packing/problem/instance.h"
#include "planner/packing/problem/work.h"
#include "planner/packing/search/interval_list.h"

namespace stalloc::planner {

class FitTree {
 public:
  explicit FitTree(std::uint32_t positions);

  // Forgets all blocks, keeps memory.
  void Clear();

  // REQUIRES: !span.empty(), span within the positions, begin < end. Addresses may already be occupied in the span.
  void Insert(const Span& span, Offset begin, Offset end);

  // Both of the item's spans.
  void Insert(const Item& item, Offset offset) {
    Insert(item.span, offset, offset + item.bytes);
    if (!item.second.empty()) Insert(item.second, offset, offset + item.bytes);
  }

  // The lowest multiple of item.alignment that is >= base and leaves item.bytes free throughout both of the item's
  // spans.
  [[nodiscard]] Offset LowestFit(const Item& item, Offset base);

  // For all calls so far.
  [[nodiscard]] Work work() const { return work_; }

 private:
  struct Node {
    IntervalList cover;
    IntervalList touch;
  };
  // Where a query stands in one list: everything before `next` ends at or below the candidate.
  struct Cursor {
    const IntervalList::Interval* next;
    const IntervalList::Interval* end;
  };
  static constexpr Offset kNoEnd = ~Offset{0};
  static constexpr std::size_t kMaxLists = 2 * 4 * 32;  // two spans, at most 4 lists a level

  void Gather(const Span& span);
  void GatherList(const IntervalList& list);
  void MarkUsed(std::uint32_t node);
  void TouchAncestors(std::uint32_t node, Offset begin, Offset end);
  template <typename Visit>
  static void ForEachAncestor(std::uint32_t left, std::uint32_t right, Visit visit);

  std::uint32_t leaves_;  // a power of two; leaf p is node leaves_ + p
  std::vector<Node> nodes_;
  std::vector<std::uint32_t> used_;  // nodes that Clear must visit
  std::vector<bool> is_used_;
  std::array<Cursor, kMaxLists> cursors_;
  // For each cursor: up to where its list has nothing above the candidate; at most the beginning of *next.
  std::array<Offset, kMaxLists> hole_ends_;
  std::size_t cursor_count_ = 0;
  Work work_ = 0;
};

}  // namespace stalloc::planner
