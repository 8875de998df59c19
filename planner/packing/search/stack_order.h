// StackOrder: blocks in the order in which they are to be placed, some of them united into stacks that slide as one.
// A plain order is one of stacks of a single block. A value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "planner/packing/problem/instance.h"

namespace stalloc::planner {

class StackOrder {
 public:
  StackOrder() = default;
  explicit StackOrder(std::span<const BlockIndex> singles) {
    blocks_.reserve(singles.size());
    ends_.reserve(singles.size());
    AppendSingles(singles);
  }

  // Lowest member first. REQUIRES: !stack.empty().
  void AppendStack(std::span<const BlockIndex> stack) {
    blocks_.insert(blocks_.end(), stack.begin(), stack.end());
    ends_.push_back(static_cast<std::uint32_t>(blocks_.size()));
  }
  void AppendSingles(std::span<const BlockIndex> singles) {
    for (const BlockIndex block : singles) AppendStack({&block, 1});
  }

  [[nodiscard]] std::size_t size() const { return ends_.size(); }
  [[nodiscard]] std::span<const BlockIndex> operator[](std::size_t i) const {
    const std::uint32_t begin = i == 0 ? 0 : ends_[i - 1];
    return {blocks_.data() + begin, ends_[i] - begin};
  }
  [[nodiscard]] const std::vector<BlockIndex>& blocks() const { return blocks_; }
  bool operator==(const StackOrder&) const = default;

 private:
  std::vector<BlockIndex> blocks_;   // stack after stack
  std::vector<std::uint32_t> ends_;  // stack i ends before blocks_[ends_[i]]
};

}  // namespace stalloc::planner
