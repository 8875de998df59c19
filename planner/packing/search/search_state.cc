#include "planner/packing/search/search_state.h"

#include <algorithm>
#include <utility>

namespace stalloc::planner {

SearchState::SearchState(const Instance& instance, const SolveOptions& options)
    : options_(options),
      own_budget_(std::in_place, options.work, options.stop),
      budget_(&*own_budget_),
      target_(std::max(options.lower_bound, options.capacity.value_or(0))),
      proved_bound_(instance.load_bound()) {
  RaiseTarget(proved_bound_);
}

SearchState::SearchState(const Instance& instance, const SolveOptions& options, Budget& budget)
    : SearchState(instance, options) {
  budget_ = &budget;
}

SolveOptions SearchState::OptionsOfPart(SolveOptions options) const {
  options.on_progress = nullptr;
  options.lower_bound = target_;
  options.capacity.reset();
  return options;
}

void SearchState::RaiseTarget(Bytes height) { target_ = std::max(target_, height); }

void SearchState::ProveBound(Bytes bound) {
  proved_bound_ = std::max(proved_bound_, bound);
  RaiseTarget(bound);
}

bool SearchState::Offer(std::vector<Offset> offsets, Bytes height, StackOrder order) {
  if (height >= best_.height) return false;
  best_ = {std::move(offsets), height, std::move(order)};
  if (options_.on_progress) options_.on_progress(height);
  return true;
}

}  // namespace stalloc::planner
