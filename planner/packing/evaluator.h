// Evaluator: runs the candidates of a search on all threads, each thread with a Placer of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "planner/packing/instance.h"
#include "planner/packing/placer.h"
#include "planner/packing/search_state.h"
#include "planner/packing/stack_order.h"

namespace stalloc::planner {

class Evaluator {
 public:
  // A candidate makes the order in which candidate `index` is placed. Called on several threads at once.
  using Candidate = std::function<StackOrder(std::size_t index)>;

  Evaluator(const Instance& instance, SearchState& state, int threads);

  // Evaluates candidates 0..count-1 by first fit and offers each finished one to the state; returns each one's packing,
  // none where it was aborted: its top passed both the best so far and `limit`, or time was up.
  std::vector<std::optional<Packing>> Run(std::size_t count, const Candidate& candidate, Bytes limit = 0);

  // The same for one order, on the calling thread.
  std::optional<Packing> FirstFit(const StackOrder& order, Bytes limit = 0);

  [[nodiscard]] const Instance& instance() const { return instance_; }
  [[nodiscard]] SearchState& state() { return state_; }
  [[nodiscard]] int threads() const { return threads_; }

 private:
  Placer& PlacerOf(int thread);
  std::optional<Packing> RunOne(const StackOrder& order, std::uint64_t ticket, Bytes limit, Placer& placer);

  const Instance& instance_;
  SearchState& state_;
  const int threads_;
  std::vector<std::unique_ptr<Placer>> placers_;  // made when a thread first needs one
};

}  // namespace stalloc::planner
