#include "planner/packing/evaluator.h"

#include <algorithm>
#include <atomic>
#include <thread>

namespace stalloc::planner {

Evaluator::Evaluator(const Instance& instance, SearchState& state, int threads)
    : instance_(instance), state_(state), threads_(std::max(threads, 1)), placers_(threads_) {}

Placer& Evaluator::PlacerOf(int thread) {
  if (placers_[thread] == nullptr) placers_[thread] = std::make_unique<Placer>(instance_, state_);
  return *placers_[thread];
}

std::optional<Packing> Evaluator::RunOne(const StackOrder& order, std::uint64_t ticket, Bytes limit, Placer& placer) {
  placer.Reset(limit);
  if (!placer.PlaceAll(order)) return std::nullopt;
  state_.Offer(placer.offsets(), placer.height(), order, ticket);
  return Packing{placer.offsets(), placer.height()};
}

std::vector<std::optional<Packing>> Evaluator::Run(std::size_t count, const Candidate& candidate, Bytes limit) {
  std::vector<std::optional<Packing>> packings(count);
  state_.NextBatch();
  std::atomic<std::size_t> next{0};
  const auto work = [&](int thread) {
    // At the target every further candidate of the batch could only tie; a lower ticket that is still running may win.
    for (std::size_t i = next++; i < count && !state_.Done(); i = next++) {
      packings[i] = RunOne(candidate(i), i + 1, limit, PlacerOf(thread));
    }
  };
  const int helpers = static_cast<int>(std::min<std::size_t>(threads_, count)) - 1;
  std::vector<std::jthread> pool;
  for (int thread = 1; thread <= helpers; ++thread) pool.emplace_back(work, thread);
  work(0);
  pool.clear();
  return packings;
}

std::optional<Packing> Evaluator::FirstFit(const StackOrder& order, Bytes limit) {
  state_.NextBatch();
  return RunOne(order, 1, limit, PlacerOf(0));
}

}  // namespace stalloc::planner
