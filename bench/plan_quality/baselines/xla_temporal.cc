// XLA's heap simulator, GlobalDecreasingSizeBestFitHeap of type kTemporal: length of lifetime descending, ties by size
// descending; gaps as in xla_spatial.cc. XLA runs both and keeps the lower heap.
#include "bench/plan_quality/baselines/baselines.h"
#include "bench/plan_quality/baselines/placement.h"

namespace stalloc::planner {
namespace {

class XlaTemporal final : public Solver {
 public:
  [[nodiscard]] std::string_view name() const override { return "xla_temporal"; }
  [[nodiscard]] Packing Solve(const Problem& problem, const SolveOptions& options) override {
    const auto before = [](const Block& a, const Block& b) {
      const Tick span_a = LifeSpan(a);
      const Tick span_b = LifeSpan(b);
      return span_a != span_b ? span_a > span_b : a.bytes > b.bytes;
    };
    return SolveInOrder(problem, SortedBlocks(problem, before), GapChoice::kSmallestUnder, options);
  }
};

}  // namespace

std::unique_ptr<Solver> MakeXlaTemporal() { return std::make_unique<XlaTemporal>(); }

}  // namespace stalloc::planner
