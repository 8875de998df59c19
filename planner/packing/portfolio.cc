#include "planner/packing/portfolio.h"

#include <array>
#include <cstddef>
#include <functional>

#include "planner/packing/compaction.h"
#include "planner/packing/core.h"
#include "planner/packing/layer_clusters.h"
#include "planner/packing/random.h"
#include "planner/packing/search_solver.h"
#include "planner/packing/size_classes.h"
#include "planner/packing/size_first_fit.h"
#include "planner/packing/squeaky_wheel.h"

namespace stalloc::planner {
namespace {

// Called when a search has lowered the height; false ends the search.
using OnLowered = std::function<bool()>;

// Searches take turns; whoever lowers the height goes on.
void SearchInTurns(Evaluator& evaluator, std::uint64_t seed, int patience, const OnLowered& on_lowered) {
  SearchState& state = evaluator.state();
  Random random(seed);
  SizeClassSearch classes(evaluator.instance(), random.Next());
  const std::array<std::function<void()>, 3> searches = {
      [&] { classes.Run(evaluator, 2); },
      [&] { SearchLayerClusters(evaluator, random.Next(), 2); },
      [&] { SearchSqueakyWheel(evaluator, random.Next(), 2); },
  };
  for (int idle = 0; idle < patience && !state.Done(); ++idle) {
    for (const std::function<void()>& search : searches) {
      Bytes before = state.height();
      for (search(); state.height() < before; search()) {
        idle = -1;
        if (!on_lowered()) return;
        if (state.Done()) return;
        before = state.height();
      }
    }
  }
}

// Searches orders of the core; those that lower it are completed to packings of all blocks.
void SearchCore(Evaluator& evaluator, const SolveOptions& options, double share) {
  // A core that stands higher than what the rest forces up is worth more search; else the rest is what matters.
  constexpr int kMaxVain = 2;
  constexpr int kCorePatience = 4;
  SearchState& state = evaluator.state();
  const Core core(evaluator.instance(), share);
  if (core.instance().size() * 5 > evaluator.instance().size() * 4) return;
  SolveOptions core_options = options;
  core_options.on_progress = nullptr;
  core_options.lower_bound = state.target();
  SearchState core_state(core.instance(), core_options);
  Evaluator core_evaluator(core.instance(), core_state, options.threads);
  core_evaluator.FirstFit(core.Restricted(state.best().order), SearchState::kNothingYet);
  SolveBySize(core_evaluator);
  int vain = 0;
  const auto complete = [&] {
    const Bytes before = state.height();
    if (core_state.height() < before) evaluator.FirstFit(core.Completed(core_state.best().order));
    vain = state.height() < before ? 0 : vain + 1;
    return !state.Done() && vain < kMaxVain;
  };
  if (core_state.height() < state.height() && !complete()) return;
  SearchInTurns(core_evaluator, options.seed, kCorePatience, complete);
}

void SearchAll(Evaluator& evaluator, const SolveOptions& options) {
  SearchState& state = evaluator.state();
  SolveBySize(evaluator);
  if (state.Done()) return;
  const Bytes by_size = state.height();
  TryLayerClusters(evaluator);
  // Where stacks pay, the wheel mends what they leave; where the sizes were nearly enough, the core is faster.
  if (state.height() + state.target() / 1024 < by_size) SearchSqueakyWheel(evaluator, options.seed, 1);
  for (const double share : {0.95, 0.85, 0.6}) {
    if (!state.Done()) SearchCore(evaluator, options, share);
  }
  if (state.Done()) return;
  // Small instances are searched out long before a deadline of seconds; this many fruitless rounds are the end.
  constexpr int kPatience = 200;
  SearchInTurns(evaluator, options.seed, kPatience, [&] {
    Compact(evaluator);
    return true;
  });
}

}  // namespace

std::unique_ptr<Solver> MakePortfolio() { return MakeSearchSolver("portfolio", SearchAll); }

}  // namespace stalloc::planner
