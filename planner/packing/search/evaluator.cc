#include "planner/packing/search/evaluator.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>
#include <utility>

namespace stalloc::planner {
namespace {

class SearchSolver final : public Solver {
 public:
  SearchSolver(std::string name, Search search) : name_(std::move(name)), search_(std::move(search)) {}

  std::string_view name() const override { return name_; }

  Packing Solve(const Problem& problem, const SolveOptions& options) override {
    if (problem.blocks.empty()) return {};
    const Instance instance(problem);
    SearchState state(instance, options);
    state.budget().Charge(kWorkOfSort * instance.size());
    Evaluator evaluator(instance, state, options.threads);
    search_(evaluator, options);
    return {state.best().offsets, state.height(), state.proved_bound(), state.budget().spent()};
  }

 private:
  const std::string name_;
  const Search search_;
};

}  // namespace

Evaluator::Evaluator(const Instance& instance, SearchState& state, int threads)
    : instance_(instance), state_(state), threads_(std::max(threads, 1)), placers_(threads_) {}

Placer& Evaluator::PlacerOf(int thread) {
  if (placers_[thread] == nullptr) placers_[thread] = std::make_unique<Placer>(instance_);
  return *placers_[thread];
}

void Evaluator::Evaluate(std::vector<Trial>& trials, const Candidate& candidate, const Placer::Limits& limits) {
  const Bytes target = state_.target();
  std::atomic<std::size_t> next{0};
  std::atomic<std::size_t> end{trials.size()};  // after the first candidate that is known to reach the target
  std::mutex mutex;                             // of the works of trials that have ended
  const auto left_to = [&](std::size_t index) {
    const std::lock_guard lock(mutex);
    Work left = limits.work;
    for (std::size_t i = 0; i < index; ++i) left -= std::min(left, trials[i].work);
    return left;
  };
  const auto run = [&](int thread) {
    for (std::size_t i = next++; i < end; i = next++) {
      Trial& trial = trials[i];
      trial.order = candidate(i);
      Placer& placer = PlacerOf(thread);
      placer.Reset({limits.height, left_to(i), limits.stop});
      if (placer.PlaceAll(trial.order)) trial.packing = Packing{placer.offsets(), placer.height()};
      const std::lock_guard lock(mutex);
      trial.work = placer.work();
      if (trial.packing && trial.packing->height <= target) end = std::min(end.load(), i + 1);
    }
  };
  const int helpers = static_cast<int>(std::min<std::size_t>(threads_, trials.size())) - 1;
  std::vector<std::jthread> pool;
  for (int thread = 1; thread <= helpers; ++thread) pool.emplace_back(run, thread);
  run(0);
}

std::vector<std::optional<Packing>> Evaluator::RunWithin(Work work, std::size_t count, const Candidate& candidate,
                                                         Bytes limit) {
  std::vector<Trial> trials(count);
  const bool may_stop = state_.height() != SearchState::kNothingYet;
  Evaluate(trials, candidate, {std::max(limit, state_.height()), work, may_stop ? &state_.budget() : nullptr});
  std::vector<std::optional<Packing>> packings(count);
  bool may_go_on = true;
  for (std::size_t i = 0; i < count && may_go_on; ++i) {
    Trial& trial = trials[i];
    may_go_on = trial.work <= work;
    state_.budget().Charge(std::min(trial.work, work));
    work -= std::min(trial.work, work);
    if (!may_go_on || !trial.packing) continue;
    packings[i] = std::move(trial.packing);
    state_.Offer(packings[i]->offsets, packings[i]->height, std::move(trial.order));
    may_go_on = !state_.AtTarget();
  }
  return packings;
}

std::vector<std::optional<Packing>> Evaluator::Run(std::size_t count, const Candidate& candidate, Bytes limit) {
  if (state_.Done()) return std::vector<std::optional<Packing>>(count);
  return RunWithin(state_.WorkLeft(), count, candidate, limit);
}

std::optional<Packing> Evaluator::FirstFit(const StackOrder& order, Bytes limit) {
  return std::move(RunWithin(
                       kUnlimitedWork, 1, [&](std::size_t) { return order; }, limit)
                       .front());
}

std::unique_ptr<Solver> MakeSearchSolver(std::string name, Search search) {
  return std::make_unique<SearchSolver>(std::move(name), std::move(search));
}

}  // namespace stalloc::planner
