// XLA's heap simulator, GlobalDecreasingSizeBestFitHeap of type kSpatial: size descending, ties by length of lifetime
// descending; the smallest gap that is large enough, where the room between the highest neighbour and the heap's top
// counts as a gap of that size.
#include "bench/plan_quality/baselines/baselines.h"
#include "bench/plan_quality/baselines/placement.h"

namespace stalloc::planner {
namespace {

class XlaSpatial final : public Solver {
 public:
  [[nodiscard]] std::string_view name() const override { return "xla_spatial"; }
  [[nodiscard]] Packing Solve(const Problem& problem, const SolveOptions& options) override {
    const auto before = [](const Block& a, const Block& b) {
      return a.bytes != b.bytes ? a.bytes > b.bytes : LifeSpan(a) > LifeSpan(b);
    };
    return SolveInOrder(problem, SortedBlocks(problem, before), GapChoice::kSmallestUnder, options);
  }
};

}  // namespace

std::unique_ptr<Solver> MakeXlaSpatial() { return std::make_unique<XlaSpatial>(); }

}  // namespace stalloc::planner
