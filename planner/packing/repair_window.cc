#include "planner/packing/repair_window.h"

#include <algorithm>
#include <utility>

namespace stalloc::planner {
namespace {

// Measured: a block that stays beside each that is taken, and one that is near where a taken block is to go.
constexpr Work kWorkOfTaken = 3;
constexpr Work kWorkOfNeighbour = 3;

Span HullOf(const Item& item) {
  if (item.second.empty()) return item.span;
  return {std::min(item.span.begin, item.second.begin), std::max(item.span.end, item.second.end)};
}

// Walks two sorted lists of intervals as one and shows every gap below the ceiling to `visit`, until that returns true.
template <typename Intervals, typename Visit>
void ForEachGap(const Intervals& a, const Intervals& b, Offset ceiling, Visit visit) {
  Offset free_from = 0;
  for (std::size_t i = 0, j = 0; i < a.size() || j < b.size();) {
    const bool take_a = j == b.size() || (i < a.size() && a[i].begin < b[j].begin);
    const auto& next = take_a ? a[i++] : b[j++];
    if (next.begin >= ceiling) break;
    if (next.begin > free_from && visit(free_from, next.begin)) return;
    free_from = std::max(free_from, next.end);
  }
  if (free_from < ceiling) visit(free_from, ceiling);
}

}  // namespace

RepairWindow::RepairWindow(const Instance& instance, std::span<const Offset> offsets,
                           std::span<const BlockIndex> by_offset, std::vector<BlockIndex> taken, Bytes ceiling)
    : instance_(instance), taken_(std::move(taken)), ceiling_(ceiling), obstacles_(taken_.size()) {
  CollectObstacles(offsets, by_offset);
}

void RepairWindow::CollectObstacles(std::span<const Offset> offsets, std::span<const BlockIndex> by_offset) {
  work_ += kWorkOfLook * by_offset.size();
  std::vector<BlockIndex> sorted = taken_;
  std::sort(sorted.begin(), sorted.end());
  Span hull = HullOf(instance_[taken_.front()]);
  for (const BlockIndex block : taken_) {
    const Span span = HullOf(instance_[block]);
    hull = {std::min(hull.begin, span.begin), std::max(hull.end, span.end)};
  }
  for (const BlockIndex other : by_offset) {
    const Item& obstacle = instance_[other];
    if (!HullOf(obstacle).Intersects(hull) || std::binary_search(sorted.begin(), sorted.end(), other)) continue;
    work_ += kWorkOfTaken * taken_.size();
    const Interval occupied{offsets[other], offsets[other] + obstacle.bytes};
    for (std::size_t i = 0; i < taken_.size(); ++i) {
      if (!instance_[taken_[i]].Conflicts(obstacle)) continue;
      std::vector<Interval>& list = obstacles_[i];
      if (!list.empty() && list.back().end >= occupied.begin) {
        list.back().end = std::max(list.back().end, occupied.end);
      } else {
        list.push_back(occupied);
      }
    }
  }
}

Offset RepairWindow::FindGap(std::uint32_t index, Fit fit) {
  const Item& item = instance_[taken_[index]];
  near_.clear();
  work_ += kWorkOfNeighbour * (placed_.size() + obstacles_[index].size());
  for (const std::uint32_t other : placed_) {
    const Item& placed = instance_[taken_[other]];
    if (placed.Conflicts(item)) near_.push_back({offsets_[other], offsets_[other] + placed.bytes});
  }
  Offset found = kUnplaced;
  Bytes tightest = kUnplaced;
  ForEachGap(obstacles_[index], near_, ceiling_, [&](Offset begin, Offset end) {
    const Offset low = RoundUp(begin, item.alignment);
    if (low + item.bytes > end) return false;
    if (fit == Fit::kHighest) {
      found = (end - item.bytes) / item.alignment * item.alignment;
    } else if (fit != Fit::kTightest || end - begin < tightest) {
      tightest = end - begin;
      found = low;
    }
    return fit == Fit::kLowest;
  });
  return found;
}

Bytes RepairWindow::Place(std::span<const std::uint32_t> order, Fit fit, Bytes limit, Random& random) {
  offsets_.assign(taken_.size(), kUnplaced);
  placed_.clear();
  Bytes left_over = 0;
  for (const std::uint32_t index : order) {
    Fit own_fit = fit;
    if (fit == Fit::kEither) own_fit = random.Below(2) == 0 ? Fit::kLowest : Fit::kHighest;
    const Offset offset = FindGap(index, own_fit);
    offsets_[index] = offset;
    if (offset == kUnplaced) {
      left_over += instance_[taken_[index]].bytes;
      if (left_over > limit) return left_over;
      continue;
    }
    const auto above = std::upper_bound(placed_.begin(), placed_.end(), offset,
                                        [&](Offset value, std::uint32_t other) { return value < offsets_[other]; });
    placed_.insert(above, index);
  }
  return left_over;
}

}  // namespace stalloc::planner
