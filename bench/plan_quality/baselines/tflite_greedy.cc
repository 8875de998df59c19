// Greedy by size for offset calculation (Pisarchyk and Lee, arXiv 2001.03288, algorithm 3), as in TensorFlow Lite: size
// descending, ties as given; the smallest gap between neighbours that is large enough, else above the highest one.
#include "bench/plan_quality/baselines/baselines.h"
#include "bench/plan_quality/baselines/placement.h"

namespace stalloc::planner {
namespace {

class TfliteGreedy final : public Solver {
 public:
  [[nodiscard]] std::string_view name() const override { return "tflite_greedy"; }
  [[nodiscard]] Packing Solve(const Problem& problem, const SolveOptions& options) override {
    const auto before = [](const Block& a, const Block& b) { return a.bytes > b.bytes; };
    return SolveInOrder(problem, SortedBlocks(problem, before), GapChoice::kSmallest, options);
  }
};

}  // namespace

std::unique_ptr<Solver> MakeTfliteGreedy() { return std::make_unique<TfliteGreedy>(); }

}  // namespace stalloc::planner
