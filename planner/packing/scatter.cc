#include "planner/packing/scatter.h"

#include <algorithm>
#include <cstddef>
#include <tuple>
#include <utility>

#include "planner/packing/address_cover.h"

namespace stalloc::planner {

ScatterMeter::ScatterMeter(const Problem& problem, const CycleAxis& cycle) : problem_(problem), window_(cycle) {
  events_.reserve(2 * problem.blocks.size());
  const auto add = [this](const Lifetime& life, std::size_t block) {
    events_.push_back({life.begin, static_cast<std::uint32_t>(block), true});
    events_.push_back({life.end, static_cast<std::uint32_t>(block), false});
  };
  for (std::size_t i = 0; i < problem.blocks.size(); ++i) {
    add(problem.blocks[i].life, i);
    if (problem.blocks[i].second_life) add(*problem.blocks[i].second_life, i);
  }
  std::sort(events_.begin(), events_.end(), [](const Event& a, const Event& b) {
    return std::tuple(a.tick, a.begins, a.block) < std::tuple(b.tick, b.begins, b.block);
  });
  if (window_.empty() && !events_.empty()) window_ = {events_.front().tick, events_.back().tick};
}

Scatter ScatterMeter::Measure(std::span<const Offset> offsets, Bytes height) const {
  std::vector<Offset> boundaries = {0, height};
  boundaries.reserve(2 * offsets.size() + 2);
  for (std::size_t i = 0; i < offsets.size(); ++i) {
    boundaries.push_back(offsets[i]);
    boundaries.push_back(offsets[i] + problem_.blocks[i].bytes);
  }
  AddressCover cover(std::move(boundaries));
  Scatter scatter;
  Tick now = window_.begin;
  const auto advance = [&](Tick tick) {
    const Tick until = std::clamp(tick, now, window_.end);
    const auto ticks = static_cast<double>(until - now);
    scatter.idle += ticks * static_cast<double>(cover.free_bytes());
    scatter.longest += ticks * static_cast<double>(cover.longest_free());
    now = until;
  };
  for (const Event& event : events_) {
    advance(event.tick);
    const Offset begin = offsets[event.block];
    const Offset end = begin + problem_.blocks[event.block].bytes;
    event.begins ? cover.Add(begin, end) : cover.Remove(begin, end);
  }
  advance(window_.end);
  return scatter;
}

}  // namespace stalloc::planner
