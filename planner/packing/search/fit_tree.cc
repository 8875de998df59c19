#include "planner/packing/search/fit_tree.h"

#include <algorithm>
#include <bit>

namespace stalloc::planner {
namespace {

using Interval = IntervalList::Interval;

// The first interval from `next` on that ends above `candidate`: doubling steps, then bisection, since cursors move
// little.
const Interval* Advance(const Interval* next, const Interval* end, Offset candidate) {
  if (next == end || next->end > candidate) return next;
  std::ptrdiff_t step = 1;
  while (end - next > step && next[step].end <= candidate) {
    next += step;
    step *= 2;
  }
  const Interval* limit = std::min(end, next + step);
  return std::partition_point(next, limit, [candidate](const Interval& i) { return i.end <= candidate; });
}

// Measured: a call of LowestFit, each list that it reads, each time one of them objects; each node that Insert changes.
constexpr Work kWorkOfCall = 50;
constexpr Work kWorkOfList = 10;
constexpr Work kWorkOfAdvance = 20;
constexpr Work kWorkOfTreeNode = 30;

Offset AlignUp(Offset offset, Bytes alignment) { return alignment == 1 ? offset : RoundUp(offset, alignment); }

}  // namespace

FitTree::FitTree(std::uint32_t positions)
    : leaves_(std::bit_ceil(std::max<std::uint32_t>(positions, 1))), nodes_(2 * leaves_), is_used_(2 * leaves_) {}

void FitTree::Clear() {
  for (const std::uint32_t node : used_) {
    nodes_[node].cover.Clear();
    nodes_[node].touch.Clear();
    is_used_[node] = false;
  }
  used_.clear();
}

void FitTree::MarkUsed(std::uint32_t node) {
  if (is_used_[node]) return;
  is_used_[node] = true;
  used_.push_back(node);
}

// Canonical nodes hang off two paths to the root: the lowest on each side has every ancestor of the others above it.
template <typename Visit>
void FitTree::ForEachAncestor(std::uint32_t left, std::uint32_t right, Visit visit) {
  left >>= 1;
  right >>= 1;
  while (left != right) {
    // The deeper node has the greater number; equal depth climbs on both sides.
    if (left > right) {
      visit(left);
      left >>= 1;
    } else {
      visit(right);
      right >>= 1;
    }
  }
  for (; left != 0; left >>= 1) visit(left);
}

// What a node's list has, those above it have too, so the first that learns nothing new ends the climb.
void FitTree::TouchAncestors(std::uint32_t node, Offset begin, Offset end) {
  for (node >>= 1; node != 0; node >>= 1) {
    work_ += kWorkOfTreeNode;
    MarkUsed(node);
    if (!nodes_[node].touch.Insert(begin, end)) return;
  }
}

void FitTree::Insert(const Span& span, Offset begin, Offset end) {
  std::uint32_t lowest_left = 0;
  std::uint32_t lowest_right = 0;
  const auto add = [&](std::uint32_t node) {
    work_ += kWorkOfTreeNode;
    MarkUsed(node);
    // A leaf is nobody's ancestor, so its cover is never read.
    if (node < leaves_) nodes_[node].cover.Insert(begin, end);
    nodes_[node].touch.Insert(begin, end);
  };
  for (std::uint32_t l = span.begin + leaves_, r = span.end + leaves_; l < r; l >>= 1, r >>= 1) {
    if (l & 1) {
      if (lowest_left == 0) lowest_left = l;
      add(l++);
    }
    if (r & 1) {
      add(--r);
      if (lowest_right == 0) lowest_right = r;
    }
  }
  if (lowest_left == 0) lowest_left = lowest_right;
  if (lowest_right == 0) lowest_right = lowest_left;
  TouchAncestors(lowest_left, begin, end);
  if (lowest_right != lowest_left) TouchAncestors(lowest_right, begin, end);
}

void FitTree::GatherList(const IntervalList& list) {
  if (list.empty()) return;
  const std::vector<Interval>& intervals = list.intervals();
  hole_ends_[cursor_count_] = intervals.front().begin;
  cursors_[cursor_count_++] = {intervals.data(), intervals.data() + intervals.size()};
}

void FitTree::Gather(const Span& span) {
  std::uint32_t lowest_left = 0;
  std::uint32_t lowest_right = 0;
  for (std::uint32_t l = span.begin + leaves_, r = span.end + leaves_; l < r; l >>= 1, r >>= 1) {
    if (l & 1) {
      if (lowest_left == 0) lowest_left = l;
      GatherList(nodes_[l++].touch);
    }
    if (r & 1) {
      GatherList(nodes_[--r].touch);
      if (lowest_right == 0) lowest_right = r;
    }
  }
  if (lowest_left == 0) lowest_left = lowest_right;
  if (lowest_right == 0) lowest_right = lowest_left;
  ForEachAncestor(lowest_left, lowest_right, [this](std::uint32_t node) { GatherList(nodes_[node].cover); });
}

Offset FitTree::LowestFit(const Item& item, Offset base) {
  cursor_count_ = 0;
  Gather(item.span);
  if (!item.second.empty()) Gather(item.second);

  Offset candidate = AlignUp(base, item.alignment);
  std::size_t agreed = 0;
  std::size_t advances = 0;
  for (std::size_t i = 0; agreed < cursor_count_; i = i + 1 == cursor_count_ ? 0 : i + 1) {
    // Nearly all looks at a list end here, so they touch neither the cursor nor the list.
    if (candidate + item.bytes <= hole_ends_[i]) {
      ++agreed;
      continue;
    }
    ++advances;
    Cursor& cursor = cursors_[i];
    cursor.next = Advance(cursor.next, cursor.end, candidate);
    bool moved = false;
    while (cursor.next != cursor.end && cursor.next->begin < candidate + item.bytes) {
      candidate = AlignUp(cursor.next->end, item.alignment);
      moved = true;
      // Alignment may have jumped over more than one interval.
      do {
        ++cursor.next;
      } while (cursor.next != cursor.end && cursor.next->end <= candidate);
    }
    hole_ends_[i] = cursor.next == cursor.end ? kNoEnd : cursor.next->begin;
    agreed = moved ? 1 : agreed + 1;
  }
  work_ += kWorkOfCall + kWorkOfList * cursor_count_ + kWorkOfAdvance * advances;
  return candidate;
}

}  // namespace stalloc::planner
