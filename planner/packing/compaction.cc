#include "planner/packing/compaction.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace stalloc::planner {

StackOrder OrderByOffset(const Instance& instance, const std::vector<Offset>& offsets) {
  std::vector<BlockIndex> order(instance.size());
  std::iota(order.begin(), order.end(), BlockIndex{0});
  std::sort(order.begin(), order.end(), [&](BlockIndex a, BlockIndex b) {
    if (offsets[a] != offsets[b]) return offsets[a] < offsets[b];
    if (instance[a].start_step != instance[b].start_step) return instance[a].start_step < instance[b].start_step;
    return a < b;
  });
  return StackOrder(order);
}

bool Compact(Evaluator& evaluator) {
  const Incumbent best = evaluator.state().best();
  evaluator.FirstFit(OrderByOffset(evaluator.instance(), best.offsets));
  return evaluator.state().height() < best.height;
}

}  // namespace stalloc::planner
