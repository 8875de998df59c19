// Evaluator: runs candidates of a search on all threads, each thread with a Placer of its own.
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

namespace stalloc::planner {

class Evaluator {
 public:
  // A candidate places every block through `placer` and returns true, or false when it gave up.
  using Candidate = std::function<bool(std::size_t index, Placer& placer)>;

  Evaluator(const Instance& instance, SearchState& state, int threads);

  // Evaluates candidates 0..count-1 and offers each finished one to the state; returns each one's height, none where it
  // was aborted (worse than the best so far, or out of time). Candidates start in order of index.
  std::vector<std::optional<Bytes>> Run(std::size_t count, const Candidate& candidate);

  // One candidate, on the calling thread: first fit in this order.
  std::optional<Bytes> FirstFit(std::span<const BlockIndex> order);

  [[nodiscard]] const Instance& instance() const { return instance_; }
  [[nodiscard]] SearchState& state() { return state_; }
  [[nodiscard]] int threads() const { return threads_; }

 private:
  Placer& PlacerOf(int thread);
  std::optional<Bytes> RunOne(std::size_t index, const Candidate& candidate, Placer& placer);

  const Instance& instance_;
  SearchState& state_;
  const int threads_;
  std::vector<std::unique_ptr<Placer>> placers_;  // made when a thread first needs one
};

}  // namespace stalloc::planner
