#include "bench/plan_quality/baselines/gap_index.h"

#include <algorithm>
#include <bit>

namespace stalloc::planner {
namespace {

std::vector<Tick> SortedBegins(const Problem& problem) {
  std::vector<Tick> begins;
  begins.reserve(problem.blocks.size());
  for (const Block& block : problem.blocks) {
    begins.push_back(block.life.begin);
    if (block.second_life) begins.push_back(block.second_life->begin);
  }
  std::sort(begins.begin(), begins.end());
  begins.erase(std::unique(begins.begin(), begins.end()), begins.end());
  return begins;
}

}  // namespace

GapIndex::GapIndex(const Problem& problem)
    : begins_(SortedBegins(problem)),
      leaves_(std::bit_ceil(std::max<std::size_t>(begins_.size(), 1))),
      nodes_(2 * leaves_) {}

void GapIndex::Clear() {
  for (Node& node : nodes_) {
    node.cover.Clear();
    node.touch.Clear();
  }
}

void GapIndex::Insert(const Block& block, Offset offset) {
  const IntervalList::Interval addresses{offset, offset + block.bytes};
  InsertInto(1, Root(), Positions(block.life), addresses);
  if (block.second_life) InsertInto(1, Root(), Positions(*block.second_life), addresses);
}

GapIndex::Range GapIndex::Positions(const Lifetime& life) const {
  const auto position = [&](Tick tick) {
    return static_cast<std::size_t>(std::lower_bound(begins_.begin(), begins_.end(), tick) - begins_.begin());
  };
  return {position(life.begin), position(life.end)};
}

void GapIndex::InsertInto(std::size_t node, Range of_node, Range range, const IntervalList::Interval& addresses) {
  if (range.end <= of_node.begin || of_node.end <= range.begin) return;
  nodes_[node].touch.Insert(addresses.begin, addresses.end);
  if (range.begin <= of_node.begin && of_node.end <= range.end) {
    nodes_[node].cover.Insert(addresses.begin, addresses.end);
    return;
  }
  const std::size_t middle = (of_node.begin + of_node.end) / 2;
  InsertInto(2 * node, {of_node.begin, middle}, range, addresses);
  InsertInto(2 * node + 1, {middle, of_node.end}, range, addresses);
}

void GapIndex::Gather(const Block& block) {
  cursors_.clear();
  GatherFrom(1, Root(), Positions(block.life));
  if (block.second_life) GatherFrom(1, Root(), Positions(*block.second_life));
}

void GapIndex::GatherFrom(std::size_t node, Range of_node, Range range) {
  if (range.end <= of_node.begin || of_node.end <= range.begin) return;
  if (range.begin <= of_node.begin && of_node.end <= range.end) return AddCursor(nodes_[node].touch);
  AddCursor(nodes_[node].cover);
  const std::size_t middle = (of_node.begin + of_node.end) / 2;
  GatherFrom(2 * node, {of_node.begin, middle}, range);
  GatherFrom(2 * node + 1, {middle, of_node.end}, range);
}

void GapIndex::AddCursor(const IntervalList& list) {
  if (list.empty()) return;
  const IntervalList::Interval* first = list.intervals().data();
  cursors_.push_back({first, first + list.intervals().size()});
}

// The lowest address at or above `address` that no list has.
Offset GapIndex::FirstFree(Offset address) {
  for (bool moved = true; moved;) {
    moved = false;
    for (Cursor& cursor : cursors_) {
      while (cursor.next != cursor.end && cursor.next->end <= address) ++cursor.next;
      if (cursor.next == cursor.end || cursor.next->begin > address) continue;
      address = cursor.next->end;
      moved = true;
    }
  }
  return address;
}

// REQUIRES: FirstFree was the last call.
Offset GapIndex::NextOccupied() const {
  Offset next = Gap::kOpen;
  for (const Cursor& cursor : cursors_) {
    if (cursor.next != cursor.end) next = std::min(next, cursor.next->begin);
  }
  return next;
}

}  // namespace stalloc::planner
