#include "planner/packing/capacity_search.h"

#include <algorithm>
#include <limits>

namespace stalloc::planner {
namespace {

constexpr std::uint64_t kNodesPerClock = 1024;
constexpr Offset kNothingLeft = std::numeric_limits<Offset>::max();

}  // namespace

CapacitySearch::CapacitySearch(const Instance& instance)
    : instance_(instance),
      conflicts_(instance.size(), instance.size()),
      alive_(instance.positions(), instance.size()),
      offsets_(instance.size()),
      rank_(instance.size()) {
  for (BlockIndex block = 0; block < instance.size(); ++block) {
    ForEachPosition(block, [&](std::uint32_t position) { alive_.Set(position, block); });
  }
  const std::vector<std::uint64_t> all(alive_.words(), ~std::uint64_t{0});
  for (BlockIndex block = 0; block < instance.size(); ++block) {
    ForEachPosition(block, [&](std::uint32_t position) {
      alive_.ForEachIn(position, all, [&](BlockIndex other) {
        if (other != block) conflicts_.Set(block, other);
      });
    });
  }
}

template <typename Visit>
void CapacitySearch::ForEachPosition(BlockIndex block, Visit visit) const {
  for (const Span& span : {instance_[block].span, instance_[block].second}) {
    for (std::uint32_t position = span.begin; position < span.end; ++position) visit(position);
  }
}

Span CapacitySearch::Hull(BlockIndex block) const {
  const Item& item = instance_[block];
  if (item.second.empty()) return item.span;
  return {std::min(item.span.begin, item.second.begin), std::max(item.span.end, item.second.end)};
}

Bytes CapacitySearch::height() const {
  Bytes height = 0;
  for (BlockIndex block = 0; block < instance_.size(); ++block) {
    height = std::max(height, offsets_[block] + instance_[block].bytes);
  }
  return height;
}

void CapacitySearch::Reset(Bytes capacity, std::span<const BlockIndex> ranking) {
  capacity_ = capacity;
  lowest_.assign(instance_.size(), 0);
  unplaced_.assign(alive_.words(), 0);
  floor_.assign(instance_.positions(), 0);
  rest_ = instance_.Load();
  touched_at_.assign(instance_.positions(), 0);
  touch_round_ = 0;
  pool_.assign(ranking.begin(), ranking.end());
  candidates_.clear();
  parts_.clear();
  choices_.clear();
  trail_.clear();
  for (std::uint32_t i = 0; i < ranking.size(); ++i) {
    rank_[ranking[i]] = i;
    unplaced_[ranking[i] / 64] |= std::uint64_t{1} << ranking[i] % 64;
  }
}

void CapacitySearch::Open(Part part, Offset floor, BlockIndex previous) {
  // Nothing may rest at or above the lowest top that is possible: that block would fit entirely below.
  Offset lowest_top = kNothingLeft;
  for (std::size_t i = part.begin; i < part.end; ++i) {
    lowest_top = std::min(lowest_top, lowest_[pool_[i]] + instance_[pool_[i]].bytes);
  }
  Choice choice{part,          floor, previous, candidates_.size(), 0, candidates_.size(), trail_.size(), pool_.size(),
                parts_.size(), 0,     0};
  for (std::size_t i = part.begin; i < part.end; ++i) {
    const BlockIndex block = pool_[i];
    const Offset offset = lowest_[block];
    if (offset < floor || offset >= lowest_top) continue;
    // Two blocks that rest on one offset without touching are placed in order of rank only.
    const bool out_of_turn =
        offset == floor && previous != kNone && rank_[block] < rank_[previous] && !conflicts_.Has(block, previous);
    if (!out_of_turn) candidates_.push_back(block);
  }
  choice.candidates_end = candidates_.size();
  // The pool is by rank already: by offset first, then.
  std::sort(candidates_.begin() + static_cast<std::ptrdiff_t>(choice.candidates_begin), candidates_.end(),
            [&](BlockIndex a, BlockIndex b) {
              return lowest_[a] != lowest_[b] ? lowest_[a] < lowest_[b] : rank_[a] < rank_[b];
            });
  choices_.push_back(choice);
}

void CapacitySearch::Close() {
  const Choice& choice = choices_.back();
  candidates_.resize(choice.candidates_begin);
  choices_.pop_back();
}

void CapacitySearch::Place(BlockIndex block) {
  offsets_[block] = lowest_[block];
  unplaced_[block / 64] &= ~(std::uint64_t{1} << block % 64);
  ForEachPosition(block, [&](std::uint32_t position) { rest_[position] -= instance_[block].bytes; });
  trail_.push_back({Change::Kind::kPlaced, block, 0});
}

bool CapacitySearch::RaiseConflicts(BlockIndex block) {
  const Offset top = offsets_[block] + instance_[block].bytes;
  bool fits = top <= capacity_;
  ++touch_round_;
  touched_.clear();
  const auto touch = [&](std::uint32_t position) {
    if (touched_at_[position] == touch_round_) return;
    touched_at_[position] = touch_round_;
    touched_.push_back(position);
  };
  ForEachPosition(block, touch);
  conflicts_.ForEachIn(block, unplaced_, [&](BlockIndex other) {
    if (lowest_[other] >= top) return;
    trail_.push_back({Change::Kind::kLowest, other, lowest_[other]});
    lowest_[other] = RoundUp(top, instance_[other].alignment);
    fits = fits && lowest_[other] + instance_[other].bytes <= capacity_;
    ForEachPosition(other, touch);
  });
  return fits;
}

void CapacitySearch::RaiseFloors() {
  for (const std::uint32_t position : touched_) {
    if (rest_[position] == 0) continue;
    Offset least = kNothingLeft;
    alive_.ForEachIn(position, unplaced_, [&](BlockIndex block) { least = std::min(least, lowest_[block]); });
    if (least == floor_[position]) continue;
    trail_.push_back({Change::Kind::kFloor, position, floor_[position]});
    floor_[position] = least;
  }
}

bool CapacitySearch::PlaceAndInfer(BlockIndex block, const Span& span) {
  Place(block);
  if (!RaiseConflicts(block)) return false;
  RaiseFloors();
  const Offset floor = offsets_[block];
  for (std::uint32_t position = span.begin; position < span.end; ++position) {
    if (rest_[position] != 0 && std::max(floor_[position], floor) + rest_[position] > capacity_) return false;
  }
  return true;
}

// Cuts wherever no block crosses. `part` is a copy: the arena that it may lie in grows.
std::size_t CapacitySearch::Split(Part part) {
  const std::size_t first = parts_.size();
  reach_.assign(part.span.length(), 0);
  for (std::size_t i = part.begin; i < part.end; ++i) {
    const BlockIndex block = pool_[i];
    if ((unplaced_[block / 64] >> block % 64 & 1) == 0) continue;
    const Span hull = Hull(block);
    std::uint32_t& reach = reach_[hull.begin - part.span.begin];
    reach = std::max(reach, hull.end);
  }
  for (std::uint32_t position = part.span.begin; position < part.span.end;) {
    std::uint32_t end = reach_[position - part.span.begin];
    if (end == 0) {
      ++position;
      continue;
    }
    const std::uint32_t begin = position;
    for (; position < end; ++position) end = std::max(end, reach_[position - part.span.begin]);
    parts_.push_back({0, 0, {begin, end}});
  }
  for (std::size_t p = first; p < parts_.size(); ++p) {
    Part& rest = parts_[p];
    rest.begin = pool_.size();
    for (std::size_t i = part.begin; i < part.end; ++i) {
      const BlockIndex block = pool_[i];
      const std::uint32_t at = Hull(block).begin;
      const bool inside = rest.span.begin <= at && at < rest.span.end;
      if (inside && (unplaced_[block / 64] >> block % 64 & 1) != 0) pool_.push_back(block);
    }
    rest.end = pool_.size();
  }
  return parts_.size() - first;
}

void CapacitySearch::UndoTo(std::size_t trail) {
  for (; trail_.size() > trail; trail_.pop_back()) {
    const Change& change = trail_.back();
    switch (change.kind) {
      case Change::Kind::kLowest:
        lowest_[change.index] = change.before;
        break;
      case Change::Kind::kFloor:
        floor_[change.index] = change.before;
        break;
      case Change::Kind::kPlaced:
        unplaced_[change.index / 64] |= std::uint64_t{1} << change.index % 64;
        ForEachPosition(change.index,
                        [&](std::uint32_t position) { rest_[position] += instance_[change.index].bytes; });
    }
  }
}

// Solves the part of the one choice that is open.
CapacitySearch::Outcome CapacitySearch::SolveRoot(const std::function<bool()>& should_stop) {
  bool solved = false;  // what the choice that was closed last reports to the one before
  while (!choices_.empty()) {
    Choice& choice = choices_.back();
    if (solved && ++choice.solved == choice.part_count) {
      Close();  // its parts stay in the arenas: a choice before it may still have to undo them
      continue;
    }
    if (!solved) {
      UndoTo(choice.trail);
      pool_.resize(choice.pool);
      parts_.resize(choice.parts);
      choice.solved = 0;
      if (choice.next == choice.candidates_end) {
        Close();
        continue;
      }
      if (nodes_left_-- == 0) return Outcome::kLimit;
      if (nodes_left_ % kNodesPerClock == 0 && should_stop()) return Outcome::kLimit;
      if (!PlaceAndInfer(candidates_[choice.next++], choice.part.span)) continue;
      choice.part_count = Split(choice.part);
      if (choice.part_count == 0) {
        solved = true;
        Close();
        continue;
      }
    }
    solved = false;
    const BlockIndex placed = candidates_[choice.next - 1];
    Open(parts_[choice.parts + choice.solved], offsets_[placed], placed);
  }
  return solved ? Outcome::kFound : Outcome::kInfeasible;
}

CapacitySearch::Outcome CapacitySearch::Run(Bytes capacity, std::span<const BlockIndex> ranking,
                                            std::uint64_t node_limit, const std::function<bool()>& should_stop) {
  if (instance_.load_bound() > capacity) return Outcome::kInfeasible;
  Reset(capacity, ranking);
  nodes_left_ = node_limit;
  const std::size_t roots = Split({0, pool_.size(), {0, instance_.positions()}});
  for (std::size_t root = 0; root < roots; ++root) {
    Open(parts_[root], 0, kNone);
    if (const Outcome outcome = SolveRoot(should_stop); outcome != Outcome::kFound) return outcome;
  }
  return Outcome::kFound;
}

}  // namespace stalloc::planner
