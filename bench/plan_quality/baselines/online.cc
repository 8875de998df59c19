#include "bench/plan_quality/baselines/online.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include "bench/plan_quality/baselines/placement.h"

namespace stalloc::planner {
namespace {

struct Step {
  Tick tick;
  bool is_request;  // false sorts first: what ends at a tick is free for what begins there
  std::size_t block;

  bool operator<(const Step& other) const {
    if (tick != other.tick) return tick < other.tick;
    return is_request != other.is_request ? is_request < other.is_request : block < other.block;
  }
};

std::vector<Step> StepsInTime(const Problem& problem) {
  std::vector<Step> steps;
  steps.reserve(2 * problem.blocks.size());
  for (std::size_t i = 0; i < problem.blocks.size(); ++i) {
    const Block& block = problem.blocks[i];
    const Lifetime& second = block.second_life.value_or(block.life);
    const Tick begin = std::min(block.life.begin, second.begin);
    steps.push_back({begin, true, i});
    steps.push_back({begin + LifeSpan(block), false, i});
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

class OnlineArena {
 public:
  explicit OnlineArena(RangeChoice choose) : choose_(choose) {}

  Offset Allocate(const Block& block) {
    const FreeRanges::const_iterator chosen = choose_(free_, block);
    if (chosen == free_.end()) return AllocateAtTop(block);
    const auto [begin, end] = *chosen;
    const Offset offset = RoundUp(begin, block.alignment);
    free_.erase(chosen);
    if (begin < offset) free_.emplace(begin, offset);
    if (offset + block.bytes < end) free_.emplace(offset + block.bytes, end);
    return offset;
  }

  void Free(Offset begin, Offset end) {
    const auto after = free_.lower_bound(begin);
    if (after != free_.end() && after->first == end) {
      end = after->second;
      free_.erase(after);
    }
    const auto next = free_.lower_bound(begin);
    if (next != free_.begin() && std::prev(next)->second == begin) {
      std::prev(next)->second = end;
    } else {
      free_.emplace(begin, end);
    }
  }

  [[nodiscard]] Bytes height() const { return height_; }

 private:
  // A free range that ends at the height is part of the room above it.
  Offset AllocateAtTop(const Block& block) {
    Offset begin = height_;
    if (!free_.empty() && free_.rbegin()->second == height_) {
      begin = free_.rbegin()->first;
      free_.erase(std::prev(free_.end()));
    }
    const Offset offset = RoundUp(begin, block.alignment);
    if (begin < offset) free_.emplace(begin, offset);
    height_ = offset + block.bytes;
    return offset;
  }

  RangeChoice choose_;
  FreeRanges free_;
  Bytes height_ = 0;
};

constexpr std::size_t kStepsBetweenLooks = 256;  // at the clock

}  // namespace

Packing SolveOnline(const Problem& problem, RangeChoice choose, const SolveOptions& options) {
  OnlineArena arena(choose);
  Packing packing{.offsets = std::vector<Offset>(problem.blocks.size())};
  const std::vector<Step> steps = StepsInTime(problem);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (i % kStepsBetweenLooks == 0 && IsStopped(options)) return {};
    const Block& block = problem.blocks[steps[i].block];
    Offset& offset = packing.offsets[steps[i].block];
    if (steps[i].is_request) {
      offset = arena.Allocate(block);
    } else {
      arena.Free(offset, offset + block.bytes);
    }
  }
  packing.height = arena.height();
  if (options.on_progress) options.on_progress(packing.height);
  return packing;
}

}  // namespace stalloc::planner
