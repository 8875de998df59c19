// Evaluator: runs the candidates of a search on all threads, each thread with a Placer of its own.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "planner/packing/problem/instance.h"
#include "planner/packing/search/placer.h"
#include "planner/packing/search/search_state.h"
#include "planner/packing/search/solver.h"
#include "planner/packing/search/stack_order.h"

namespace stalloc::planner {

class Evaluator {
 public:
  // A candidate makes the order in which candidate `index` is placed. Called on several threads at once.
  using Candidate = std::function<StackOrder(std::size_t index)>;

  Evaluator(const Instance& instance, SearchState& state, int threads);

  // Evaluates candidates 0..count-1 by first fit and offers them to the state in this order, until one reaches the
  // target or the budget is spent; returns each one's packing, none where it was not offered: its top passed both the
  // best before this batch and `limit`, or it is after the end. The outcome does not depend on the threads: which
  // candidate is aborted or comes last is decided by candidates before it alone.
  std::vector<std::optional<Packing>> Run(std::size_t count, const Candidate& candidate, Bytes limit = 0);

  // The same for one order, on the calling thread, whatever is left of the budget: it may be what a search has found.
  std::optional<Packing> FirstFit(const StackOrder& order, Bytes limit = 0);

  [[nodiscard]] const Instance& instance() const { return instance_; }
  [[nodiscard]] SearchState& state() { return state_; }
  [[nodiscard]] int threads() const { return threads_; }

 private:
  struct Trial {
    StackOrder order;
    std::optional<Packing> packing;
    Work work = 0;
  };
  Placer& PlacerOf(int thread);
  std::vector<std::optional<Packing>> RunWithin(Work work, std::size_t count, const Candidate& candidate, Bytes limit);
  void Evaluate(std::vector<Trial>& trials, const Candidate& candidate, const Placer::Limits& limits);

  const Instance& instance_;
  SearchState& state_;
  const int threads_;
  std::vector<std::unique_ptr<Placer>> placers_;  // made when a thread first needs one
};

// REQUIRES of a search: it offers at least one packing, whatever the budget.
using Search = std::function<void(Evaluator& evaluator, const SolveOptions& options)>;

// A solver that prepares the instance, runs the search, and returns the best packing it offered.
[[nodiscard]] std::unique_ptr<Solver> MakeSearchSolver(std::string name, Search search);

}  // namespace stalloc::planner
