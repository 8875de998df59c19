// Online best fit: each request takes the smallest free range that is large enough, the lowest of several.
#include "bench/plan_quality/baselines/baselines.h"
#include "bench/plan_quality/baselines/online.h"

namespace stalloc::planner {
namespace {

FreeRanges::const_iterator SmallestRange(const FreeRanges& ranges, const Block& block) {
  FreeRanges::const_iterator smallest = ranges.end();
  for (auto range = ranges.begin(); range != ranges.end(); ++range) {
    if (!FitsInto(block, range->first, range->second)) continue;
    if (smallest == ranges.end() || range->second - range->first < smallest->second - smallest->first) smallest = range;
  }
  return smallest;
}

class OnlineBestFit final : public Solver {
 public:
  [[nodiscard]] std::string_view name() const override { return "online_best_fit"; }
  [[nodiscard]] Packing Solve(const Problem& problem, const SolveOptions& options) override {
    return SolveOnline(problem, SmallestRange, options);
  }
};

}  // namespace

std::unique_ptr<Solver> MakeOnlineBestFit() { return std::make_unique<OnlineBestFit>(); }

}  // namespace stalloc::planner
