#include "planner/packing/search/search_blocks.h"

#include <algorithm>
#include <numeric>
#include <tuple>

namespace stalloc::planner {
SearchBlocks::SearchBlocks(const Instance& instance) : instance_(instance), conflicts_(0, 0), alive_(0, 0) {
  AddEntries(MergePositions());
  AddConflicts();
  AddTwins();
}

// The set alive changes exactly where a span begins or ends; two runs of positions with one set between two changes are
// distinguished, which costs nothing but time.
std::vector<std::uint32_t> SearchBlocks::MergePositions() {
  std::vector<bool> changes(instance_.positions() + 1, false);
  std::vector<std::int64_t> count(instance_.positions() + 1, 0);
  for (const Item& item : instance_.items()) {
    for (const Span& span : {item.span, item.second}) {
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

void SearchBlocks::AddEntries(const std::vector<std::uint32_t>& merged) {
  for (const Item& item : instance_.items()) {
    const Span span{merged[item.span.begin], merged[item.span.end]};
    const Span second = item.second.empty() ? Span{} : Span{merged[item.second.begin], merged[item.second.end]};
    entries_.push_back(
        {item.bytes, item.alignment, span, second, {merged[item.Hull().begin], merged[item.Hull().end]}, kNone});
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

}  // namespace stalloc::planner
