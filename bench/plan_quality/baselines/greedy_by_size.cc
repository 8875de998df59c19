// Greedy by size: size descending, ties by begin of lifetime, first fit. The common offline heuristic.
#include "bench/plan_quality/baselines/baselines.h"
#include "bench/plan_quality/baselines/placement.h"

namespace stalloc::planner {
namespace {

class GreedyBySize final : public Solver {
 public:
  [[nodiscard]] std::string_view name() const override { return "greedy_by_size"; }
  [[nodiscard]] Packing Solve(const Problem& problem, const SolveOptions& options) override {
    const auto before = [](const Block& a, const Block& b) {
      return a.bytes != b.bytes ? a.bytes > b.bytes : a.life.begin < b.life.begin;
    };
    return SolveInOrder(problem, SortedBlocks(problem, before), GapChoice::kLowest, options);
  }
};

}  // namespace

std::unique_ptr<Solver> MakeGreedyBySize() { return std::make_unique<GreedyBySize>(); }

}  // namespace stalloc::planner
