// Online first fit: each request takes the lowest free range that is large enough.
#include <algorithm>

#include "bench/plan_quality/baselines/baselines.h"
#include "bench/plan_quality/baselines/online.h"

namespace stalloc::planner {
namespace {

FreeRanges::const_iterator LowestRange(const FreeRanges& ranges, const Block& block) {
  return std::find_if(ranges.begin(), ranges.end(),
                      [&](const auto& range) { return FitsInto(block, range.first, range.second); });
}

class OnlineFirstFit final : public Solver {
 public:
  [[nodiscard]] std::string_view name() const override { return "online_first_fit"; }
  [[nodiscard]] Packing Solve(const Problem& problem, const SolveOptions& options) override {
    return SolveOnline(problem, LowestRange, options);
  }
};

}  // namespace

std::unique_ptr<Solver> MakeOnlineFirstFit() { return std::make_unique<OnlineFirstFit>(); }

}  // namespace stalloc::planner
