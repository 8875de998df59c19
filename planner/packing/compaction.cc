#include "planner/packing/compaction.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace stalloc::planner {

bool Compact(Evaluator& evaluator) {
  const Instance& instance = evaluator.instance();
  const Incumbent best = evaluator.state().best();
  std::vector<BlockIndex> order(instance.size());
  std::iota(order.begin(), order.end(), BlockIndex{0});
  std::sort(order.begin(), order.end(), [&](BlockIndex a, BlockIndex b) {
    if (best.offsets[a] != best.offsets[b]) return best.offsets[a] < best.offsets[b];
    if (instance[a].start_step != instance[b].start_step) return instance[a].start_step < instance[b].start_step;
    return a < b;
  });
  evaluator.FirstFit(StackOrder(order));
  return evaluator.state().height() < best.height;
}

}  // namespace stalloc::planner
