#include "planner/packing/finish/scatter.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <tuple>
#include <utility>

namespace stalloc::planner {
namespace {

// Which addresses are taken now, how many are free, and how long the longest free run is: a segment tree over the
// strips between given boundaries. A node that is covered whole counts how often; the others know their free bytes and
// the free runs at their ends. Each change is O(log n). Ranges may overlap each other.
class AddressCover {
 public:
  // `boundaries` need not be sorted or distinct. All is free between the least and the greatest.
  explicit AddressCover(std::vector<Offset> boundaries);

  // REQUIRES: begin < end, both of them boundaries; Remove takes back an Add of the same range.
  void Add(Offset begin, Offset end) { Change(begin, end, 1); }
  void Remove(Offset begin, Offset end) { Change(begin, end, -1); }

  [[nodiscard]] Bytes free_bytes() const { return nodes_[1].free; }
  [[nodiscard]] Bytes longest_free() const { return nodes_[1].longest; }

 private:
  struct Node {
    Bytes length = 0;
    Bytes free = 0;
    Bytes left = 0;   // free run at the lower end
    Bytes right = 0;  // free run at the upper end
    Bytes longest = 0;
    std::int32_t covers = 0;  // of ranges for which the node is canonical
  };

  void Change(Offset begin, Offset end, std::int32_t by);
  void Update(std::size_t node);
  [[nodiscard]] std::size_t StripAt(Offset boundary) const;

  std::vector<Offset> boundaries_;
  std::size_t leaves_;  // a power of two; strip s is node leaves_ + s
  std::vector<Node> nodes_;
};

AddressCover::AddressCover(std::vector<Offset> boundaries) : boundaries_(std::move(boundaries)) {
  std::sort(boundaries_.begin(), boundaries_.end());
  boundaries_.erase(std::unique(boundaries_.begin(), boundaries_.end()), boundaries_.end());
  // One leaf at least, and a root that is no leaf.
  leaves_ = std::bit_ceil(std::max<std::size_t>(boundaries_.size(), 2));
  nodes_.resize(2 * leaves_);
  for (std::size_t strip = 0; strip + 1 < boundaries_.size(); ++strip) {
    nodes_[leaves_ + strip].length = boundaries_[strip + 1] - boundaries_[strip];
  }
  for (std::size_t node = 2 * leaves_ - 1; node > 0; --node) {
    if (node < leaves_) nodes_[node].length = nodes_[2 * node].length + nodes_[2 * node + 1].length;
    Update(node);
  }
}

void AddressCover::Update(std::size_t index) {
  Node& node = nodes_[index];
  if (node.covers > 0) {
    node.free = node.left = node.right = node.longest = 0;
    return;
  }
  if (index >= leaves_) {
    node.free = node.left = node.right = node.longest = node.length;
    return;
  }
  const Node& lower = nodes_[2 * index];
  const Node& upper = nodes_[2 * index + 1];
  node.free = lower.free + upper.free;
  node.left = lower.free == lower.length ? lower.length + upper.left : lower.left;
  node.right = upper.free == upper.length ? upper.length + lower.right : upper.right;
  node.longest = std::max({lower.longest, upper.longest, lower.right + upper.left});
}

std::size_t AddressCover::StripAt(Offset boundary) const {
  return static_cast<std::size_t>(std::lower_bound(boundaries_.begin(), boundaries_.end(), boundary) -
                                  boundaries_.begin());
}

void AddressCover::Change(Offset begin, Offset end, std::int32_t by) {
  const std::size_t first = leaves_ + StripAt(begin);
  const std::size_t last = leaves_ + StripAt(end) - 1;
  const auto cover = [&](std::size_t node) {
    nodes_[node].covers += by;
    Update(node);
  };
  for (std::size_t l = first, r = last + 1; l < r; l >>= 1, r >>= 1) {
    if (l & 1) cover(l++);
    if (r & 1) cover(--r);
  }
  std::size_t l = first >> 1;
  std::size_t r = last >> 1;
  for (; l != r; l >>= 1, r >>= 1) {
    Update(l);
    Update(r);
  }
  for (; l != 0; l >>= 1) Update(l);
}

}  // namespace

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
