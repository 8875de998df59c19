#include "planner/packing/search/exact_search.h"

#include <algorithm>
#include <utility>

#include "planner/packing/search/size_first_fit.h"

namespace stalloc::planner {

bool ExactSearch::Round() {
  SearchState& state = evaluator_.state();
  // For this round: below it nothing is requested, or the limit was met.
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

ExactSearch::Outcome ExactSearch::Try(Bytes capacity) {
  const Outcome outcome = race_.Run(capacity, node_limit_, rounds_ % 2 == 0, evaluator_.state());
  if (outcome == Outcome::kFound) evaluator_.FirstFit(OrderByOffset(evaluator_.instance(), race_.offsets()));
  return outcome;
}

}  // namespace stalloc::planner
