#include "planner/packing/search/exact_search.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "planner/packing/search/capacity_race.h"
#include "planner/packing/search/size_first_fit.h"

namespace stalloc::planner {
namespace {

using Outcome = CapacitySearch::Outcome;

constexpr std::uint64_t kFirstNodeLimit = 2048;
constexpr std::uint64_t kLastNodeLimit = std::uint64_t{1} << 23;

}  // namespace

class ExactSearch::Impl {
 public:
  Impl(Evaluator& evaluator, std::uint64_t seed)
      : evaluator_(evaluator),
        blocks_(evaluator.instance()),
        race_(blocks_, seed, evaluator.threads()),
        possible_(evaluator.state().proved_bound()) {}

  bool Round() {
    SearchState& state = evaluator_.state();
    // Of this round: below it nothing is asked for, or the limit was met.
    Bytes from = std::max(possible_, state.target());
    int undecided = 0;
    bool lowest = true;
    // The bound is most often reached; where it is not decided, a height half-way lowers the best, or raises the bound.
    while (undecided < 2 && !state.Done() && from < state.height()) {
      const Bytes highest = state.height() - 1;
      const Bytes capacity = std::exchange(lowest, false) ? from : from + (highest - from) / 2;
      const Outcome outcome = Try(capacity);
      if (outcome == Outcome::kFound) continue;
      if (outcome == Outcome::kInfeasible) possible_ = std::max(possible_, capacity + 1);
      if (outcome == Outcome::kLimit) ++undecided;
      from = capacity + 1;
    }
    ++rounds_;
    node_limit_ = std::min(4 * node_limit_, kLastNodeLimit);
    if (possible_ < state.height()) return state.AtTarget();  // for the caller's capacity, then
    state.ProveBound(possible_);
    return true;
  }

 private:
  Outcome Try(Bytes capacity) {
    const Outcome outcome = race_.Run(capacity, node_limit_, rounds_ % 2 == 0, evaluator_.state());
    if (outcome == Outcome::kFound) evaluator_.FirstFit(OrderByOffset(evaluator_.instance(), race_.offsets()));
    return outcome;
  }

  Evaluator& evaluator_;
  const SearchBlocks blocks_;
  CapacityRace race_;
  Bytes possible_;  // every height below it is proved impossible
  std::uint64_t node_limit_ = kFirstNodeLimit;
  int rounds_ = 0;
};

ExactSearch::ExactSearch(Evaluator& evaluator, std::uint64_t seed) : impl_(std::make_unique<Impl>(evaluator, seed)) {}
ExactSearch::~ExactSearch() = default;
bool ExactSearch::Round() { return impl_->Round(); }

std::unique_ptr<Solver> MakeExactSearch() {
  return MakeSearchSolver("exact_search", [](Evaluator& evaluator, const SolveOptions& options) {
    SolveBySize(evaluator);
    if (evaluator.instance().size() > kMaxExactBlocks) return;
    ExactSearch search(evaluator, options.seed);
    for (int round = 0; round < kMaxExactRounds && !evaluator.state().Done() && !search.Round(); ++round) {
    }
  });
}

}  // namespace stalloc::planner
