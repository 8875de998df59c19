#include "planner/packing/portfolio.h"

#include <array>
#include <cstddef>
#include <functional>

#include "planner/packing/compaction.h"
#include "planner/packing/layer_clusters.h"
#include "planner/packing/random.h"
#include "planner/packing/search_solver.h"
#include "planner/packing/size_classes.h"
#include "planner/packing/size_first_fit.h"
#include "planner/packing/squeaky_wheel.h"

namespace stalloc::planner {
namespace {

// Searches take turns; whoever lowers the height goes on.
void SearchInTurns(Evaluator& evaluator, std::uint64_t seed) {
  // Small instances are searched out long before a deadline of seconds; this many fruitless rounds are the end.
  constexpr int kPatience = 200;
  SearchState& state = evaluator.state();
  Random random(seed);
  SizeClassSearch classes(evaluator.instance(), random.Next());
  const std::array<std::function<void()>, 3> searches = {
      [&] { classes.Run(evaluator, 2); },
      [&] { SearchLayerClusters(evaluator, random.Next(), 2); },
      [&] { SearchSqueakyWheel(evaluator, random.Next(), 2); },
  };
  for (int idle = 0; idle < kPatience && !state.Done(); ++idle) {
    for (const std::function<void()>& search : searches) {
      Bytes before = state.height();
      for (search(); state.height() < before && !state.Done(); search()) {
        idle = -1;
        before = state.height();
        Compact(evaluator);
      }
    }
  }
}

}  // namespace

std::unique_ptr<Solver> MakePortfolio() {
  return MakeSearchSolver("portfolio", [](Evaluator& evaluator, const SolveOptions& options) {
    SolveBySize(evaluator);
    if (!evaluator.state().Done()) Compact(evaluator);
    SearchInTurns(evaluator, options.seed);
  });
}

}  // namespace stalloc::planner
