#include "planner/packing/portfolio.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <optional>
#include <utility>

#include "planner/packing/finish/prefetch_slack.h"
#include "planner/packing/finish/tidy.h"
#include "planner/packing/problem/random.h"
#include "planner/packing/search/exact_search.h"
#include "planner/packing/search/layer_clusters.h"
#include "planner/packing/search/sampled_classes.h"
#include "planner/packing/search/size_classes.h"
#include "planner/packing/search/size_first_fit.h"

namespace stalloc::planner {
namespace {

// Searches alternate; one that lowers the height goes on.
void SearchInTurns(Evaluator& evaluator, const SolveOptions& options, std::uint64_t seed, int patience) {
  SearchState& state = evaluator.state();
  Random random(seed);
  SizeClassSearch classes(evaluator.instance(), random.Next());
  std::vector<std::function<void()>> searches;
  if (options.passes.Have(PackingPass::kSizeClasses)) searches.emplace_back([&] { classes.Run(evaluator, 2); });
  if (options.passes.Have(PackingPass::kLayerClusters)) {
    searches.emplace_back([&] { SearchLayerClusters(evaluator, random.Next(), 2); });
  }
  for (int idle = 0; idle < patience && !state.Done(); ++idle) {
    for (const std::function<void()>& search : searches) {
      Bytes before = state.height();
      for (search(); state.height() < before; search()) {
        idle = -1;
        if (state.Done()) return;
        before = state.height();
      }
    }
  }
}

// Proves the optimum where it can, and lowers the best by the other searches in between: not in the first rounds, which
// take less time than these.
void SearchSmall(Evaluator& evaluator, const SolveOptions& options, int alone = 4) {
  ExactSearch exact(evaluator, options.seed);
  for (int round = 0; round < kMaxExactRounds && !evaluator.state().Done(); ++round) {
    if (exact.Round()) return;
    if (round < alone) continue;
    SearchInTurns(evaluator, options, options.seed + static_cast<std::uint64_t>(round), 1);
  }
}

void SearchLarge(Evaluator& evaluator, const SolveOptions& options) {
  if (options.passes.Have(PackingPass::kLayerClusters)) TryLayerClusters(evaluator);
  // So many fruitless rounds are the end, whatever is left of the budget.
  constexpr int kPatience = 200;
  SearchInTurns(evaluator, options, options.seed, kPatience);
}

// What gives the first packing soon, and a good one where the instance is a long run.
void SearchFirst(Evaluator& evaluator, const SolveOptions& options) {
  const bool is_long = evaluator.instance().size() >= kMinSampledBlocks;
  const bool varies = HasManySizes(evaluator.instance());
  const bool sampled = is_long && options.passes.Have(PackingPass::kSampledClasses);
  if ((!sampled || !varies) && !evaluator.state().Done()) SolveBySize(evaluator);
  if (sampled && !evaluator.state().Done()) SearchSampledClasses(evaluator, options, 2);
}

void SearchAll(Evaluator& evaluator, const SolveOptions& options) {
  SearchFirst(evaluator, options);
  if (evaluator.state().Done()) return;
  const bool small = evaluator.instance().size() <= kMaxExactBlocks && options.passes.Have(PackingPass::kExactSearch);
  small ? SearchSmall(evaluator, options) : SearchLarge(evaluator, options);
}

// Prefetch slack may cost this part of the height.
constexpr Bytes kPrefetchSlack = 200;

// Tidies what the search finds. A tenth of the work, and never more than tidying takes at most, is kept for it.
class Portfolio final : public Solver {
 public:
  std::string_view name() const override { return search_->name(); }

  Packing Solve(const Problem& problem, const SolveOptions& options) override {
    std::optional<Problem> ahead;
    if (options.passes.Have(PackingPass::kPrefetchSlack)) ahead = ExtendForPrefetch(problem, options.cycle);
    if (!ahead) return SolveTidy(problem, options);
    Packing roomy = SolveTidy(*ahead, options);
    roomy.proved_bound = 0;  // what is proved of that problem is not of this one
    const auto is_near = [&](Bytes height) { return roomy.height <= height + height / kPrefetchSlack; };
    if (is_near(LoadBound(problem))) return roomy;
    Packing plain = SolveTidy(problem, options);
    plain.work += roomy.work;
    return is_near(plain.height) ? roomy : plain;
  }

 private:
  Packing SolveTidy(const Problem& problem, const SolveOptions& options) {
    SolveOptions search = options;
    search.work = options.work - std::min(options.work / 10, kMostPlacements * kWorkOfPlacement);
    Packing packing = search_->Solve(problem, search);
    TidyOptions tidy{.stop = options.stop, .passes = options.passes, .cycle = options.cycle};
    const Work left = options.work - std::min(options.work, packing.work);
    tidy.placements = std::min<std::size_t>(left / kWorkOfPlacement, kMostPlacements);
    return Tidy(problem, std::move(packing), tidy);
  }

  const std::unique_ptr<Solver> search_ = MakeSearchSolver("portfolio", SearchAll);
};

}  // namespace

std::unique_ptr<Solver> MakePortfolio() { return std::make_unique<Portfolio>(); }

std::vector<std::unique_ptr<Solver>> MakeAllSolvers() {
  using Options = SolveOptions;
  std::vector<std::unique_ptr<Solver>> solvers;
  solvers.push_back(MakeSizeFirstFit());
  const auto add = [&](std::string name, Search search) {
    solvers.push_back(MakeSearchSolver(std::move(name), [search](Evaluator& evaluator, const Options& options) {
      SolveBySize(evaluator);
      if (!evaluator.state().Done()) search(evaluator, options);
    }));
  };
  add("size_classes", [](Evaluator& e, const Options& o) { SizeClassSearch(e.instance(), o.seed).Run(e, 100); });
  add("sampled_classes", [](Evaluator& e, const Options& o) { SearchSampledClasses(e, o, 4); });
  add("layer_clusters", [](Evaluator& e, const Options& o) { SearchLayerClusters(e, o.seed, 100); });
  add("exact_search", [](Evaluator& e, const Options& o) {
    if (e.instance().size() <= kMaxExactBlocks) SearchSmall(e, o, kMaxExactRounds);
  });
  solvers.push_back(MakePortfolio());
  return solvers;
}

}  // namespace stalloc::planner
