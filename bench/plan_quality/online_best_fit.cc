#include "bench/plan_quality/online_best_fit.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include "absl/container/btree_map.h"

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

// Ticks from the first begin to the last end, a second lifetime included.
Tick LifeSpan(const Block& block) {
  if (!block.second_life) return block.life.end - block.life.begin;
  return std::max(block.life.end, block.second_life->end) - std::min(block.life.begin, block.second_life->begin);
}

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

// Free ranges below the height, begin -> end, none adjacent to another. The space above the height is taken only where
// none of them is large enough.
using FreeRanges = absl::btree_map<Offset, Offset>;

// The smallest that is large enough, the lowest of several; or end().
FreeRanges::const_iterator SmallestRange(const FreeRanges& ranges, const Block& block) {
  FreeRanges::const_iterator smallest = ranges.end();
  for (auto range = ranges.begin(); range != ranges.end(); ++range) {
    if (RoundUp(range->first, block.alignment) + block.bytes > range->second) continue;
    if (smallest == ranges.end() || range->second - range->first < smallest->second - smallest->first) smallest = range;
  }
  return smallest;
}

class OnlineArena {
 public:
  Offset Allocate(const Block& block) {
    const FreeRanges::const_iterator chosen = SmallestRange(free_, block);
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
  // A free range that ends at the height is part of the space above it.
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

  FreeRanges free_;
  Bytes height_ = 0;
};

constexpr std::size_t kStepsBetweenLooks = 256;  // at the clock

class OnlineBestFit final : public Solver {
 public:
  [[nodiscard]] std::string_view name() const override { return "online_best_fit"; }
  [[nodiscard]] Packing Solve(const Problem& problem, const SolveOptions& options) override {
    OnlineArena arena;
    Packing packing{.offsets = std::vector<Offset>(problem.blocks.size())};
    const std::vector<Step> steps = StepsInTime(problem);
    for (std::size_t i = 0; i < steps.size(); ++i) {
      if (i % kStepsBetweenLooks == 0 && options.stop != nullptr && *options.stop) return {};
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
};

}  // namespace

std::unique_ptr<Solver> MakeOnlineBestFit() { return std::make_unique<OnlineBestFit>(); }

}  // namespace stalloc::planner
