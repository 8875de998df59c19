#include "planner/packing/address_cover.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace stalloc::planner {

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

}  // namespace stalloc::planner
