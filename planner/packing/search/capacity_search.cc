#include "planner/packing/search/capacity_search.h"

#include <algorithm>
#include <limits>

namespace stalloc::planner {
namespace {

constexpr std::uint64_t kNodesBetweenLooks = 1024;  // at the stop flag
// Measured: a search, of each block and position; a node; a change; a floor, and each word of blocks that it may look
// at; a block that is ranked.
constexpr Work kWorkOfReset = 1500;
constexpr Work kWorkOfNode = 100;
constexpr Work kWorkOfChange = 25;
constexpr Work kWorkOfFloor = 10;
constexpr Work kWorkOfRank = 60;
constexpr Offset kNothingLeft = std::numeric_limits<Offset>::max();

}  // namespace

CapacitySearch::CapacitySearch(const SearchBlocks& blocks)
    : blocks_(blocks), offsets_(blocks.size()), failed_(blocks.size()) {}

// False if not even the empty packing leaves space.
bool CapacitySearch::Reset(Bytes capacity) {
  if (capacity > failed_capacity_) failed_.Clear();
  failed_capacity_ = capacity;
  capacity_ = capacity;
  const std::uint32_t count = blocks_.size();
  unplaced_.assign(blocks_.conflicts().words(), 0);
  lowest_.resize(count);
  out_of_order_.assign(count, 0);
  crossing_.assign(blocks_.positions(), 0);
  rest_ = blocks_.load();
  floor_.assign(blocks_.positions(), 0);
  touched_.assign(blocks_.positions(), 0);
  touch_ = 0;
  pool_.clear();
  candidates_.clear();
  parts_.clear();
  choices_.clear();
  trail_.clear();
  bool fits = true;
  for (std::uint32_t block = 0; block < count; ++block) {
    const Entry& entry = blocks_[block];
    lowest_[block] = blocks_.LowestFit(block, 0);
    fits = fits && lowest_[block] + entry.bytes <= capacity;
    unplaced_[block / 64] |= std::uint64_t{1} << block % 64;
    for (std::uint32_t p = entry.hull.begin; p + 1 < entry.hull.end; ++p) ++crossing_[p];
    pool_.push_back(block);
  }
  for (std::uint32_t position = 0; position < blocks_.positions(); ++position) RaiseFloor(position);
  trail_.clear();
  return fits && HasRoom({0, blocks_.positions()}, 0);
}

void CapacitySearch::Rank(const Part& part) {
  if (keys_.size() < blocks_.size()) keys_.resize(blocks_.size());
  const std::size_t load_key = ranking_->load_key;
  work_ += kWorkOfRank * (part.end - part.begin);
  for (std::size_t i = part.begin; i < part.end; ++i) {
    const std::uint32_t block = pool_[i];
    keys_[block] = ranking_->keys[block];
    if (load_key == Ranking::kNoLoad) continue;
    Bytes load = 0;
    blocks_.ForEachPosition(block, [&](std::uint32_t position) { load = std::max(load, rest_[position]); });
    keys_[block][load_key] *= static_cast<double>(load);
  }
  std::sort(pool_.begin() + static_cast<std::ptrdiff_t>(part.begin),
            pool_.begin() + static_cast<std::ptrdiff_t>(part.end),
            [&](std::uint32_t a, std::uint32_t b) { return keys_[a] != keys_[b] ? keys_[a] > keys_[b] : a < b; });
}

bool CapacitySearch::Open(const Part& part) {
  // Nothing may rest at or above the lowest top that is possible: that block would fit entirely below.
  Offset lowest_top = kNothingLeft;
  PartHash hash;
  Offset proved_floor = 0;
  work_ += part.end - part.begin;
  for (std::size_t i = part.begin; i < part.end; ++i) {
    const std::uint32_t block = pool_[i];
    const Offset offset = lowest_[block];
    lowest_top = std::min(lowest_top, offset + blocks_[block].bytes);
    hash.Add(block, offset << 1 | out_of_order_[block]);
    const bool too_late = offset < part.floor || (offset == part.floor && i < part.first);
    if (too_late) proved_floor = std::max(proved_floor, offset + 1);
  }
  if (failed_.Has(hash, part.floor)) return false;
  const std::size_t begin = candidates_.size();
  for (std::size_t i = part.begin; i < part.end; ++i) {
    const std::uint32_t block = pool_[i];
    const Offset offset = lowest_[block];
    if (offset >= lowest_top || offset < part.floor || (offset == part.floor && i < part.first)) continue;
    const std::uint32_t twin = blocks_[block].twin;
    if (out_of_order_[block] == 0 && (twin == kNone || IsPlaced(twin))) candidates_.push_back({offset, i});
  }
  std::sort(
      candidates_.begin() + static_cast<std::ptrdiff_t>(begin), candidates_.end(),
      [](const Candidate& a, const Candidate& b) { return a.offset != b.offset ? a.offset < b.offset : a.at < b.at; });
  choices_.push_back(
      {part, hash, proved_floor, begin, candidates_.size(), begin, trail_.size(), pool_.size(), parts_.size(), 0, 0});
  return true;
}

void CapacitySearch::Close() {
  candidates_.resize(choices_.back().candidates_begin);
  choices_.pop_back();
}

void CapacitySearch::Fail(std::size_t depth) {
  for (; choices_.size() > depth; Close()) failed_.Add(choices_.back().hash, choices_.back().proved_floor);
}

void CapacitySearch::Place(std::uint32_t block) {
  const Entry& entry = blocks_[block];
  offsets_[block] = lowest_[block];
  unplaced_[block / 64] &= ~(std::uint64_t{1} << block % 64);
  blocks_.ForEachPosition(block, [&](std::uint32_t position) { rest_[position] -= entry.bytes; });
  falls_apart_ = false;
  for (std::uint32_t p = entry.hull.begin; p + 1 < entry.hull.end; ++p) falls_apart_ |= --crossing_[p] == 0;
  trail_.push_back({Change::Kind::kPlaced, false, block, 0});
}

// Two blocks with the same lifetimes, one directly on the other, may change places.
bool CapacitySearch::OutOfOrder(std::uint32_t below, std::uint32_t above) const {
  const Entry& a = blocks_[below];
  const Entry& b = blocks_[above];
  if (!ranking_->orders_stacks || !a.SameSpans(b) || a.alignment != 1 || b.alignment != 1) return false;
  return a.bytes != b.bytes ? a.bytes < b.bytes : above < below;
}

bool CapacitySearch::RaiseConflicts(std::uint32_t block) {
  const Offset top = offsets_[block] + blocks_[block].bytes;
  bool fits = true;
  blocks_.conflicts().ForEachIn(block, unplaced_, [&](std::uint32_t other) {
    const Offset before = lowest_[other];
    if (before >= top) return;
    trail_.push_back({Change::Kind::kLowest, out_of_order_[other] != 0, other, before});
    lowest_[other] = blocks_.LowestFit(other, top);
    out_of_order_[other] = lowest_[other] == top && OutOfOrder(block, other) ? 1 : 0;
    fits = fits && lowest_[other] + blocks_[other].bytes <= capacity_;
  });
  return fits;
}

void CapacitySearch::Touch(std::uint32_t position) {
  if (touched_[position] == touch_) return;
  touched_[position] = touch_;
  work_ += kWorkOfFloor + blocks_.alive().words() / 2;
  RaiseFloor(position);
}

void CapacitySearch::RaiseFloor(std::uint32_t position) {
  Offset least = 0;
  if (rest_[position] != 0) {
    least = kNothingLeft;
    // A floor never sinks while blocks are placed, so one block on it is enough.
    const bool stays = blocks_.alive().AnyIn(position, unplaced_, [&](std::uint32_t block) {
      least = std::min(least, lowest_[block]);
      return least == floor_[position];
    });
    if (stays) return;
  }
  trail_.push_back({Change::Kind::kFloor, false, position, floor_[position]});
  floor_[position] = least;
}

bool CapacitySearch::HasRoom(const Span& span, Offset floor) const {
  bool fits = true;
  for (std::uint32_t p = span.begin; p < span.end; ++p) fits &= std::max(floor_[p], floor) + rest_[p] <= capacity_;
  return fits;
}

bool CapacitySearch::PlaceAndInfer(std::uint32_t block, const Span& span) {
  Place(block);
  const std::size_t first = trail_.size();
  const bool fits = RaiseConflicts(block);
  const std::size_t last = trail_.size();
  work_ += kWorkOfNode + kWorkOfChange * (last - first) + span.length() / 2;
  if (!fits) return false;
  ++touch_;
  blocks_.ForEachPosition(block, [&](std::uint32_t position) { Touch(position); });
  for (std::size_t i = first; i < last; ++i) {
    const Change change = trail_[i];  // a copy: the trail grows
    blocks_.ForEachPosition(change.index, [&](std::uint32_t position) {
      if (floor_[position] == change.before) Touch(position);
    });
  }
  return HasRoom(span, offsets_[block]);
}

void CapacitySearch::Descend(Choice& choice) {
  const std::size_t at = candidates_[choice.next - 1].at;
  if (falls_apart_) {
    Split(choice, at);
  } else {
    Continue(choice, at, blocks_.conflicts().Intersects(pool_[at], unplaced_));
  }
  choice.part_count = parts_.size() - choice.parts;
}

// The part stays in one piece. Where nothing will lie on the block placed, it is not to blame for what comes.
void CapacitySearch::Continue(const Choice& choice, std::size_t at, bool is_covered) {
  Part rest = choice.part;
  rest.begin = pool_.size();
  rest.floor = offsets_[pool_[at]];
  rest.first = rest.begin + (at - choice.part.begin);
  if (is_covered) rest.depth = choices_.size();
  for (std::size_t i = choice.part.begin; i < choice.part.end; ++i) {
    if (i != at) pool_.push_back(pool_[i]);
  }
  rest.end = pool_.size();
  if (rest.begin != rest.end) parts_.push_back(rest);
}

void CapacitySearch::FindParts(const Part& part) {
  reach_.assign(part.span.length(), 0);
  for (std::size_t i = part.begin; i < part.end; ++i) {
    if (IsPlaced(pool_[i])) continue;
    const Span& hull = blocks_[pool_[i]].hull;
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
    parts_.push_back({0, 0, {begin, end}, part.floor, 0, part.depth});
  }
}

void CapacitySearch::FillPart(const Choice& choice, std::uint32_t placed, Part& part) {
  part.begin = part.first = pool_.size();
  bool is_touched = false;
  for (std::size_t i = choice.part.begin; i < choice.part.end; ++i) {
    const std::uint32_t block = pool_[i];
    const std::uint32_t at = blocks_[block].hull.begin;
    if (at < part.span.begin || at >= part.span.end || IsPlaced(block)) continue;
    pool_.push_back(block);
    is_touched |= blocks_.conflicts().Has(placed, block);
  }
  part.end = pool_.size();
  if (!is_touched) return;
  part.floor = offsets_[placed];
  part.depth = choices_.size();
}

// A part that the block placed does not touch goes back to what bore on it before, from the floor of then.
void CapacitySearch::Split(const Choice& choice, std::size_t at) {
  const std::size_t first = parts_.size();
  const std::uint32_t placed = pool_[at];
  FindParts(choice.part);
  for (std::size_t p = first; p < parts_.size(); ++p) {
    FillPart(choice, placed, parts_[p]);
    if (ranking_->follows_load) Rank(parts_[p]);
  }
}

void CapacitySearch::UndoTo(std::size_t trail) {
  for (; trail_.size() > trail; trail_.pop_back()) {
    const Change& change = trail_.back();
    switch (change.kind) {
      case Change::Kind::kLowest:
        lowest_[change.index] = change.before;
        out_of_order_[change.index] = change.out_of_order ? 1 : 0;
        break;
      case Change::Kind::kFloor:
        floor_[change.index] = change.before;
        break;
      case Change::Kind::kPlaced: {
        const Entry& entry = blocks_[change.index];
        unplaced_[change.index / 64] |= std::uint64_t{1} << change.index % 64;
        blocks_.ForEachPosition(change.index, [&](std::uint32_t position) { rest_[position] += entry.bytes; });
        for (std::uint32_t p = entry.hull.begin; p + 1 < entry.hull.end; ++p) ++crossing_[p];
      }
    }
  }
}

// Solves the part of the one choice that is open.
CapacitySearch::Outcome CapacitySearch::SolveRoot(const Limits& limits) {
  bool solved = false;  // what the choice that was closed last reports to the one before
  while (!choices_.empty()) {
    Choice& choice = choices_.back();
    if (solved) {
      if (++choice.solved == choice.part_count) {
        Close();  // its parts stay in the arenas: a choice before it may still have to undo them
        continue;
      }
    } else {
      UndoTo(choice.trail);
      pool_.resize(choice.pool);
      parts_.resize(choice.parts);
      choice.solved = 0;
      if (choice.next == choice.candidates_end) {
        Fail(choice.part.depth);
        continue;
      }
      if (nodes_ == limits.nodes || work_ > limits.work) return Outcome::kLimit;
      if (nodes_++ % kNodesBetweenLooks == 0 && limits.should_stop && limits.should_stop()) return Outcome::kLimit;
      const std::uint32_t block = pool_[candidates_[choice.next++].at];
      if (!PlaceAndInfer(block, choice.part.span)) {
        // A block on which nothing will lie is not to blame.
        if (!blocks_.conflicts().Intersects(block, unplaced_)) Fail(choice.part.depth);
        continue;
      }
      Descend(choice);
      if (choice.part_count == 0) {
        solved = true;
        Close();
        continue;
      }
    }
    solved = false;
    const Part next = parts_[choice.parts + choice.solved];
    if (!Open(next)) Fail(next.depth);
  }
  return solved ? Outcome::kFound : Outcome::kInfeasible;
}

CapacitySearch::Outcome CapacitySearch::Run(Bytes capacity, const Ranking& ranking, const Limits& limits) {
  ranking_ = &ranking;
  nodes_ = 0;
  work_ = std::min(limits.work, kWorkOfReset * (blocks_.size() + blocks_.positions()));
  if (work_ == limits.work) return Outcome::kLimit;
  if (!Reset(capacity)) return Outcome::kInfeasible;
  const Part all{0, pool_.size(), {0, blocks_.positions()}, 0, 0, 0};
  FindParts(all);
  const std::vector<Part> roots = parts_;
  for (Part part : roots) {
    part.begin = part.first = pool_.size();
    for (std::size_t i = all.begin; i < all.end; ++i) {
      const std::uint32_t at = blocks_[pool_[i]].hull.begin;
      if (part.span.begin <= at && at < part.span.end) pool_.push_back(pool_[i]);
    }
    part.end = pool_.size();
    Rank(part);
    if (!Open(part)) return Outcome::kInfeasible;
    if (const Outcome outcome = SolveRoot(limits); outcome != Outcome::kFound) return outcome;
  }
  return Outcome::kFound;
}

}  // namespace stalloc::planner
