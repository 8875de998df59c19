#include "planner/packing/search_blocks.h"

#include <algorithm>
#include <numeric>
#include <tuple>

namespace stalloc::planner {
namespace {

Span Hull(const Span& first, const Span& second) {
  if (second.empty()) return first;
  return {std::min(first.begin, second.begin), std::max(first.end, second.end)};
}

bool IsFrozen(FrozenOffsets frozen, BlockIndex block) { return !frozen.empty() && frozen[block].has_value(); }

}  // namespace

SearchBlocks::SearchBlocks(const Instance& instance, FrozenOffsets frozen)
    : instance_(instance), conflicts_(0, 0), alive_(0, 0), frozen_(instance.size()) {
  for (BlockIndex block = 0; block < instance.size(); ++block) {
    if (IsFrozen(frozen, block)) frozen_[block] = *frozen[block];
  }
  const std::vector<std::uint32_t> merged = MergePositions(frozen);
  AddEntries(frozen, merged);
  AddConflicts();
  AddTwins();
  has_obstacles_ = entries_.size() < instance.size();
  if (has_obstacles_) AddObstacles(frozen, merged);
  for (const Entry& entry : entries_) {
    work_ += kWorkOfSort + (entry.hull.end - entry.hull.begin) * conflicts_.words();
  }
  work_ += (instance.size() - entries_.size()) * (kWorkOfSort + 2 * entries_.size());
}

std::vector<Offset> SearchBlocks::Completed(std::span<const Offset> of_entries) const {
  std::vector<Offset> offsets = frozen_;
  for (std::uint32_t i = 0; i < size(); ++i) offsets[entries_[i].block] = of_entries[i];
  return offsets;
}

// The set alive changes exactly where a span begins or ends; two runs of positions with one set between two changes are
// told apart, which costs nothing but time.
std::vector<std::uint32_t> SearchBlocks::MergePositions(FrozenOffsets frozen) {
  std::vector<bool> changes(instance_.positions() + 1, false);
  std::vector<std::int64_t> count(instance_.positions() + 1, 0);
  for (BlockIndex block = 0; block < instance_.size(); ++block) {
    if (IsFrozen(frozen, block)) continue;
    for (const Span& span : {instance_[block].span, instance_[block].second}) {
      if (span.empty()) continue;
      changes[span.begin] = changes[span.end] = true;
      ++count[span.begin];
      --count[span.end];
    }
  }
  std::vector<std::uint32_t> merged(instance_.positions() + 1);
  std::int64_t alive = 0;
  for (std::uint32_t position = 0; position <= instance_.positions(); ++position) {
    const bool was_alive = alive > 0;
    if (changes[position] && was_alive) ++positions_;
    alive += count[position];
    merged[position] = positions_;
  }
  return merged;
}

void SearchBlocks::AddEntries(FrozenOffsets frozen, const std::vector<std::uint32_t>& merged) {
  for (BlockIndex block = 0; block < instance_.size(); ++block) {
    if (IsFrozen(frozen, block)) continue;
    const Item& item = instance_[block];
    const Span span{merged[item.span.begin], merged[item.span.end]};
    const Span second = item.second.empty() ? Span{} : Span{merged[item.second.begin], merged[item.second.end]};
    entries_.push_back({block, item.bytes, item.alignment, span, second, Hull(span, second), kNone});
  }
  load_.assign(positions_, 0);
  for (std::uint32_t i = 0; i < size(); ++i) {
    ForEachPosition(i, [&](std::uint32_t position) { load_[position] += entries_[i].bytes; });
  }
}

void SearchBlocks::AddConflicts() {
  conflicts_ = BitRows(size(), size());
  alive_ = BitRows(positions_, size());
  for (std::uint32_t i = 0; i < size(); ++i) {
    ForEachPosition(i, [&](std::uint32_t position) { alive_.Set(position, i); });
  }
  for (std::uint32_t i = 0; i < size(); ++i) {
    ForEachPosition(i, [&](std::uint32_t position) { conflicts_.Unite(i, alive_, position); });
    conflicts_.Clear(i, i);
  }
}

void SearchBlocks::AddTwins() {
  std::vector<std::uint32_t> order(size());
  std::iota(order.begin(), order.end(), 0);
  const auto key = [&](std::uint32_t i) {
    const Entry& e = entries_[i];
    return std::tuple(e.span.begin, e.span.end, e.second.begin, e.second.end, e.bytes, e.alignment);
  };
  std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) { return key(a) < key(b); });
  for (std::size_t i = 1; i < order.size(); ++i) {
    if (key(order[i]) == key(order[i - 1])) entries_[order[i]].twin = order[i - 1];
  }
}

// The frozen blocks alive at one position are there together, so what they leave free is what the entries alive there
// can have; of the positions that were merged into one, the one with the greatest frozen load speaks for it.
std::vector<std::uint32_t> SearchBlocks::FullestPositions(FrozenOffsets frozen,
                                                          const std::vector<std::uint32_t>& merged) const {
  std::vector<Bytes> load(instance_.positions() + 1);  // differences modulo 2^64 first
  for (BlockIndex block = 0; block < instance_.size(); ++block) {
    if (!IsFrozen(frozen, block)) continue;
    for (const Span& span : {instance_[block].span, instance_[block].second}) {
      load[span.begin] += instance_[block].bytes;
      load[span.end] -= instance_[block].bytes;
    }
  }
  std::partial_sum(load.begin(), load.end(), load.begin());
  std::vector<bool> alive(instance_.positions(), false);
  for (const Entry& entry : entries_) {
    for (const Span& span : {instance_[entry.block].span, instance_[entry.block].second}) {
      std::fill(alive.begin() + span.begin, alive.begin() + span.end, true);
    }
  }
  std::vector<std::uint32_t> fullest(positions_, instance_.positions());
  for (std::uint32_t position = 0; position < instance_.positions(); ++position) {
    if (!alive[position]) continue;
    std::uint32_t& best = fullest[merged[position]];
    if (best == instance_.positions() || load[position] > load[best]) best = position;
  }
  return fullest;
}

void SearchBlocks::AddObstacles(FrozenOffsets frozen, const std::vector<std::uint32_t>& merged) {
  const std::vector<std::uint32_t> fullest = FullestPositions(frozen, merged);
  around_.resize(entries_.size());
  at_.resize(positions_);
  for (BlockIndex block = 0; block < instance_.size(); ++block) {
    if (!IsFrozen(frozen, block)) continue;
    const Item& item = instance_[block];
    const Offset begin = *frozen[block];
    const Offset end = begin + item.bytes;
    frozen_top_ = std::max(frozen_top_, end);
    for (std::uint32_t i = 0; i < size(); ++i) {
      if (item.Conflicts(instance_[entries_[i].block])) around_[i].Insert(begin, end);
    }
    for (const Span& span : {item.span, item.second}) {
      const auto first = std::lower_bound(fullest.begin(), fullest.end(), span.begin);
      const auto last = std::lower_bound(first, fullest.end(), span.end);
      for (auto at = first; at != last; ++at) at_[static_cast<std::size_t>(at - fullest.begin())].Insert(begin, end);
    }
  }
}

}  // namespace stalloc::planner
