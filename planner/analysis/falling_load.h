// FallingLoad: bytes by tick, with their greatest; ranges of ticks may be made less. A tree of maxima. Not thread-safe.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <vector>

#include "planner/packing/problem/problem.h"

namespace stalloc::planner {

class FallingLoad {
 public:
  explicit FallingLoad(const std::vector<Bytes>& by_tick)
      : leaves_(std::bit_ceil(by_tick.size())), most_(2 * leaves_), less_(2 * leaves_) {
    std::copy(by_tick.begin(), by_tick.end(), most_.begin() + static_cast<std::ptrdiff_t>(leaves_));
    for (std::size_t node = leaves_ - 1; node > 0; --node) most_[node] = std::max(most_[2 * node], most_[2 * node + 1]);
  }

  [[nodiscard]] Bytes most() const { return most_[1]; }
  // The first tick that has the most.
  [[nodiscard]] Tick peak() const {
    std::size_t node = 1;
    while (node < leaves_) node = 2 * node + (most_[2 * node] >= most_[2 * node + 1] ? 0 : 1);
    return static_cast<Tick>(node - leaves_);
  }
  // REQUIRES: each tick of it has as much.
  void Lower(const Lifetime& life, Bytes bytes) {
    Lower(1, 0, leaves_, static_cast<std::size_t>(life.begin), static_cast<std::size_t>(life.end), bytes);
  }

 private:
  void Lower(std::size_t node, std::size_t first, std::size_t last, std::size_t begin, std::size_t end, Bytes bytes) {
    if (end <= first || last <= begin) return;
    if (begin <= first && last <= end) {
      most_[node] -= bytes;
      less_[node] += bytes;
      return;
    }
    const std::size_t middle = (first + last) / 2;
    Lower(2 * node, first, middle, begin, end, bytes);
    Lower(2 * node + 1, middle, last, begin, end, bytes);
    most_[node] = std::max(most_[2 * node], most_[2 * node + 1]) - less_[node];
  }

  const std::size_t leaves_;
  std::vector<Bytes> most_;  // by node, with what was taken from all of it
  std::vector<Bytes> less_;  // by node: taken from all of it
};

}  // namespace stalloc::planner
