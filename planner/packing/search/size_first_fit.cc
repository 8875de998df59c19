#include "planner/packing/search/size_first_fit.h"

#include <algorithm>
#include <numeric>

namespace stalloc::planner {

std::vector<BlockIndex> SizeOrder(const Instance& instance) {
  std::vector<BlockIndex> order(instance.size());
  std::iota(order.begin(), order.end(), BlockIndex{0});
  std::sort(order.begin(), order.end(), [&](BlockIndex a, BlockIndex b) {
    const Item& x = instance[a];
    const Item& y = instance[b];
    if (x.bytes != y.bytes) return x.bytes > y.bytes;
    if (x.start_step != y.start_step) return x.start_step < y.start_step;
    return a < b;
  });
  return order;
}

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

void SolveBySize(Evaluator& evaluator) { evaluator.FirstFit(StackOrder(SizeOrder(evaluator.instance()))); }

std::unique_ptr<Solver> MakeSizeFirstFit() {
  return MakeSearchSolver("size_first_fit", [](Evaluator& evaluator, const SolveOptions&) { SolveBySize(evaluator); });
}

}  // namespace stalloc::planner
