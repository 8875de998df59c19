#include "planner/packing/problem/instance.h"

#include <algorithm>
#include <vector>

namespace stalloc::planner {
namespace {

struct LifeEvent {
  Tick tick;
  std::uint32_t order;  // ends (0) before beginnings (1) of the same tick, then by block: the sort is a total order
  BlockIndex block;
  bool second;

  [[nodiscard]] bool begins() const { return order != 0; }
  bool operator<(const LifeEvent& other) const {
    if (tick != other.tick) return tick < other.tick;
    if (order != other.order) return order < other.order;
    return block < other.block;
  }
};

std::vector<LifeEvent> SortedLifeEvents(const Problem& problem) {
  std::vector<LifeEvent> events;
  events.reserve(2 * problem.blocks.size());
  const auto add = [&events](const Lifetime& life, BlockIndex block, bool second) {
    events.push_back({life.begin, 1, block, second});
    events.push_back({life.end, 0, block, second});
  };
  for (std::size_t i = 0; i < problem.blocks.size(); ++i) {
    const auto block = static_cast<BlockIndex>(i);
    add(problem.blocks[i].life, block, false);
    if (problem.blocks[i].second_life) add(*problem.blocks[i].second_life, block, true);
  }
  std::sort(events.begin(), events.end());
  return events;
}

}  // namespace

Instance::Instance(const Problem& problem) : problem_(&problem), items_(problem.blocks.size()) {
  for (std::size_t i = 0; i < items_.size(); ++i) {
    items_[i].bytes = problem.blocks[i].bytes;
    items_[i].alignment = problem.blocks[i].alignment;
    items_[i].persistent = problem.blocks[i].persistent;
  }
  bool run_open = false;  // the last event was a beginning
  std::uint32_t steps = 0;
  Bytes load = 0;
  for (const LifeEvent& event : SortedLifeEvents(problem)) {
    Item& item = items_[event.block];
    Span& span = event.second ? item.second : item.span;
    if (!event.begins()) {
      run_open = false;
      load -= item.bytes;
      span.end = positions_;
      if (!event.second) item.end_step = steps;
      continue;
    }
    if (!run_open) ++positions_;
    run_open = true;
    load += item.bytes;
    span.begin = positions_ - 1;
    if (!event.second) item.start_step = steps++;
    load_bound_ = std::max(load_bound_, load);
  }
}

std::vector<Bytes> Instance::Load() const {
  // Differences modulo 2^64 first, then their running sum.
  std::vector<Bytes> load(positions_ + 1);
  for (const Item& item : items_) {
    for (const Span& span : {item.span, item.second}) {
      load[span.begin] += item.bytes;
      load[span.end] -= item.bytes;
    }
  }
  for (std::size_t i = 1; i < load.size(); ++i) load[i] += load[i - 1];
  load.pop_back();
  return load;
}

}  // namespace stalloc::planner
