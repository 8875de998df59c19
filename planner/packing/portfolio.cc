#include "planner/packing/portfolio.h"

#include <array>
#include <cstddef>
#include <functional>

#include "planner/packing/compaction.h"
#include "planner/packing/core.h"
#include "planner/packing/exact_search.h"
#include "planner/packing/interleaved.h"
#include "planner/packing/layer_clusters.h"
#include "planner/packing/lower_bound.h"
#include "planner/packing/random.h"
#include "planner/packing/ring.h"
#include "planner/packing/sampled_classes.h"
#include "planner/packing/search_solver.h"
#include "planner/packing/size_classes.h"
#include "planner/packing/size_first_fit.h"
#include "planner/packing/squeaky_wheel.h"
#include "planner/packing/tidy_solver.h"
#include "planner/packing/time_decomposition.h"
#include "planner/packing/window_repair.h"

namespace stalloc::planner {
namespace {

// Called when a search has lowered the height; false ends the search.
using OnLowered = std::function<bool()>;

// Beyond this, windows of a few hundred blocks say nothing worth the passes over all of them.
constexpr std::size_t kMaxRelaxedBlocks = 300'000;

// Soon given up: the next turn draws other windows.
constexpr RepairLimits kWindowsOfATurn = {.windows = 4000, .patience = 200};

// Searches take turns; whoever lowers the height goes on.
void SearchInTurns(Evaluator& evaluator, std::uint64_t seed, int patience, const OnLowered& on_lowered) {
  SearchState& state = evaluator.state();
  Random random(seed);
  SizeClassSearch classes(evaluator.instance(), random.Next());
  const std::array<std::function<void()>, 4> searches = {
      [&] { classes.Run(evaluator, 2); },
      [&] { SearchLayerClusters(evaluator, random.Next(), 2); },
      [&] { SearchSqueakyWheel(evaluator, random.Next(), 2); },
      // Details, when the orders of all blocks have nothing more to give.
      [&] { SearchWindows(evaluator, kWindowsOfATurn, random.Next()); },
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

// Searches orders of a core; those that lower it are completed to packings of all blocks.
class CoreSearch {
 public:
  CoreSearch(Evaluator& whole, const SolveOptions& options, double share)
      : whole_(whole),
        core_(whole.instance(), share),
        options_(OptionsOfCore(options, whole.state().target())),
        state_(core_.instance(), options_, whole.state().budget()),
        evaluator_(core_.instance(), state_, options.threads) {
    whole.state().budget().Charge(kWorkOfSort * whole.instance().size());
    if (IsWorthwhile()) TakeOver();
  }

  // A core that is nearly everything saves nothing.
  [[nodiscard]] bool IsWorthwhile() const { return core_.instance().size() * 5 <= whole_.instance().size() * 4; }

  // Evaluates the order of the best packing of all blocks in the core; completes it when that reaches the target, for
  // then it was only the blocks outside the core that stood in the way.
  void TakeOver() {
    state_.RaiseTarget(whole_.state().target());
    evaluator_.FirstFit(core_.Restricted(whole_.state().best().order), SearchState::kNothingYet);
    if (state_.AtTarget()) Complete();
  }

  void Search() {
    constexpr int kPatience = 4;
    if (vain_ < kMaxVain) SearchInTurns(evaluator_, options_.seed, kPatience, [this] { return Complete(); });
  }

 private:
  // So often a lower core may fail to lower the whole: then the rest of the blocks is what matters.
  static constexpr int kMaxVain = 2;

  static SolveOptions OptionsOfCore(SolveOptions options, Bytes target) {
    options.on_progress = nullptr;
    options.lower_bound = target;
    options.capacity.reset();
    return options;
  }

  // False when more search in the core makes no sense.
  bool Complete() {
    SearchState& state = whole_.state();
    const Bytes before = state.height();
    if (state_.height() < before) whole_.FirstFit(core_.Completed(state_.best().order));
    vain_ = state.height() < before ? 0 : vain_ + 1;
    return !state.Done() && vain_ < kMaxVain;
  }

  Evaluator& whole_;
  const Core core_;
  const SolveOptions options_;
  SearchState state_;
  Evaluator evaluator_;
  int vain_ = 0;
};

// Stacks of layers; where they pay at all, the wheel mends what they leave.
void SearchStacks(Evaluator& evaluator, std::uint64_t seed) {
  SearchState& state = evaluator.state();
  const Bytes before = state.height();
  TryLayerClusters(evaluator);
  if (state.height() + state.target() / 1024 < before) SearchSqueakyWheel(evaluator, seed, 1);
}

// Proves the optimum where it can, and lowers the best by the other searches in between.
void SearchSmall(Evaluator& evaluator, const SolveOptions& options) {
  ExactSearch exact(evaluator, options.seed);
  constexpr int kAlone = 4;  // rounds of less time than the other searches would take
  for (int round = 0; round < kMaxExactRounds && !evaluator.state().Done(); ++round) {
    if (exact.Round()) return;
    if (round < kAlone) continue;
    SearchInTurns(evaluator, options.seed + static_cast<std::uint64_t>(round), 1, [] { return true; });
  }
}

void SearchLarge(Evaluator& evaluator, const SolveOptions& options) {
  SearchState& state = evaluator.state();
  {
    // Where layers come again as they were, stacks of them soon gain most of what there is.
    const bool stacks_first = !SizesVary(evaluator.instance());
    if (stacks_first) SearchStacks(evaluator, options.seed);
    CoreSearch peak(evaluator, options, 0.95);
    if (!state.Done() && !stacks_first) SearchStacks(evaluator, options.seed);
    if (!state.Done() && evaluator.instance().size() <= kMaxRelaxedBlocks) {
      ProveByRelaxation(evaluator.instance(), state);
    }
    if (state.Done()) return;
    if (peak.IsWorthwhile()) {
      peak.TakeOver();
      peak.Search();
    }
  }
  for (const double share : {0.85, 0.6}) {
    if (state.Done()) return;
    CoreSearch wider(evaluator, options, share);
    if (!state.Done() && wider.IsWorthwhile()) wider.Search();
  }
  // So many fruitless rounds are the end, whatever is left of the budget.
  constexpr int kPatience = 200;
  SearchInTurns(evaluator, options.seed, kPatience, [&] {
    Compact(evaluator);
    return true;
  });
}

// What gives the first packing soon, and a good one where the instance is a long run.
void SearchFirst(Evaluator& evaluator, const SolveOptions& options) {
  const std::size_t blocks = evaluator.instance().size();
  const bool is_long = blocks >= kMinSampledBlocks;
  const bool varies = SizesVary(evaluator.instance());
  if (blocks > kMaxExactBlocks && !varies) SearchInterleaved(evaluator, options.seed);
  if ((!is_long || !varies) && !evaluator.state().Done()) SolveBySize(evaluator);
  if (blocks > kMaxExactBlocks && !varies && !evaluator.state().Done()) SearchRings(evaluator, options.seed);
  if (!is_long || evaluator.state().Done()) return;
  SearchSampledClasses(evaluator, options, 2);
  if (!evaluator.state().Done()) SearchParts(evaluator, options);
}

void SearchAll(Evaluator& evaluator, const SolveOptions& options) {
  SearchFirst(evaluator, options);
  if (evaluator.state().Done()) return;
  const bool small = evaluator.instance().size() <= kMaxExactBlocks;
  small ? SearchSmall(evaluator, options) : SearchLarge(evaluator, options);
}

}  // namespace

std::unique_ptr<Solver> MakePortfolio() { return MakeTidySolver(MakeSearchSolver("portfolio", SearchAll)); }

}  // namespace stalloc::planner
