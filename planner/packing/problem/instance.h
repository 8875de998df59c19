// Instance: a problem prepared for search.
//
// Time is compressed to *positions*: a run of beginnings with no end between them is one position, for what is alive at
// any of them is alive at the last. Two blocks live at once exactly if their spans of positions intersect, and the
// greatest load over positions is the load bound. Steps (for measures of nearness) count every beginning instead.
// Immutable after construction; thread-safe. Bytes throughout.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "planner/packing/problem/problem.h"

namespace stalloc::planner {

using BlockIndex = std::uint32_t;  // index into Problem::blocks

// Half-open range of positions; empty where a block has no second lifetime.
struct Span {
  std::uint32_t begin = 0;
  std::uint32_t end = 0;

  [[nodiscard]] bool empty() const { return begin == end; }
  [[nodiscard]] std::uint32_t length() const { return end - begin; }
  [[nodiscard]] bool Intersects(const Span& other) const { return begin < other.end && other.begin < end; }
  bool operator==(const Span&) const = default;
};

struct Item {
  Bytes bytes = 0;
  Bytes alignment = 1;
  Span span;
  Span second;                   // empty: none
  std::uint32_t start_step = 0;  // blocks that began before this one
  std::uint32_t end_step = 0;    // blocks that began before this one ended
  bool persistent = false;

  // From the beginning of the first span to the end of the last.
  [[nodiscard]] Span Hull() const {
    if (second.empty()) return span;
    return {std::min(span.begin, second.begin), std::max(span.end, second.end)};
  }
};

class Instance {
 public:
  // REQUIRES: blocks with bytes > 0, alignment > 0 and lifetimes that are not empty; fewer than 2^30 blocks; the
  // problem outlives the instance.
  explicit Instance(const Problem& problem);

  [[nodiscard]] const Problem& problem() const { return *problem_; }
  [[nodiscard]] std::size_t size() const { return items_.size(); }
  [[nodiscard]] const Item& operator[](BlockIndex block) const { return items_[block]; }
  [[nodiscard]] const std::vector<Item>& items() const { return items_; }
  [[nodiscard]] std::uint32_t positions() const { return positions_; }
  [[nodiscard]] Bytes load_bound() const { return load_bound_; }
  // The load at each position.
  [[nodiscard]] std::vector<Bytes> Load() const;

 private:
  const Problem* problem_;
  std::vector<Item> items_;
  std::uint32_t positions_ = 0;
  Bytes load_bound_ = 0;
};

}  // namespace stalloc::planner
