#include "planner/packing/search/core.h"

#include <algorithm>
#include <bit>

#include "planner/packing/search/size_first_fit.h"

namespace stalloc::planner {
namespace {

// Greatest load within a span of positions.
class PeakOverSpan {
 public:
  explicit PeakOverSpan(const Instance& instance)
      : leaves_(std::bit_ceil(std::max<std::uint32_t>(instance.positions(), 1))), greatest_(2 * leaves_) {
    const std::vector<Bytes> load = instance.Load();
    std::copy(load.begin(), load.end(), greatest_.begin() + leaves_);
    for (std::uint32_t node = leaves_ - 1; node > 0; --node) {
      greatest_[node] = std::max(greatest_[2 * node], greatest_[2 * node + 1]);
    }
  }

  [[nodiscard]] Bytes Of(const Span& span) const {
    Bytes greatest = 0;
    for (std::uint32_t l = span.begin + leaves_, r = span.end + leaves_; l < r; l >>= 1, r >>= 1) {
      if (l & 1) greatest = std::max(greatest, greatest_[l++]);
      if (r & 1) greatest = std::max(greatest, greatest_[--r]);
    }
    return greatest;
  }

 private:
  std::uint32_t leaves_;
  std::vector<Bytes> greatest_;
};

std::vector<BlockIndex> CoreBlocks(const Instance& whole, double share, Bytes least_bytes) {
  const PeakOverSpan peak(whole);
  const Bytes least = static_cast<Bytes>(share * static_cast<double>(whole.load_bound()));
  std::vector<BlockIndex> kept;
  for (BlockIndex i = 0; i < whole.size(); ++i) {
    const Item& item = whole[i];
    if (item.bytes >= least_bytes && std::max(peak.Of(item.span), peak.Of(item.second)) >= least) kept.push_back(i);
  }
  return kept;
}

Problem Subset(const Problem& problem, std::span<const BlockIndex> kept) {
  Problem subset;
  subset.blocks.reserve(kept.size());
  for (const BlockIndex block : kept) subset.blocks.push_back(problem.blocks[block]);
  return subset;
}

}  // namespace

Bytes LightBytes(const Instance& instance) { return instance.load_bound() / 32768; }

Core::Core(const Instance& whole, double share, Bytes least_bytes)
    : whole_(whole),
      kept_(CoreBlocks(whole, share, least_bytes)),
      problem_(Subset(whole.problem(), kept_)),
      instance_(problem_) {}

StackOrder Core::Completed(const StackOrder& core_order) const {
  StackOrder order;
  std::vector<bool> is_core(whole_.size());
  std::vector<BlockIndex> stack;
  for (std::size_t i = 0; i < core_order.size(); ++i) {
    stack.clear();
    for (const BlockIndex block : core_order[i]) stack.push_back(kept_[block]);
    order.AppendStack(stack);
  }
  for (const BlockIndex block : kept_) is_core[block] = true;
  std::vector<BlockIndex> rest = SizeOrder(whole_);
  std::erase_if(rest, [&](BlockIndex block) { return is_core[block]; });
  order.AppendSingles(rest);
  return order;
}

StackOrder Core::Restricted(const StackOrder& order) const {
  StackOrder restricted;
  std::vector<BlockIndex> stack;
  for (std::size_t i = 0; i < order.size(); ++i) {
    stack.clear();
    for (const BlockIndex block : order[i]) {
      const auto found = std::lower_bound(kept_.begin(), kept_.end(), block);
      if (found != kept_.end() && *found == block) stack.push_back(static_cast<BlockIndex>(found - kept_.begin()));
    }
    if (!stack.empty()) restricted.AppendStack(stack);
  }
  return restricted;
}

}  // namespace stalloc::planner
