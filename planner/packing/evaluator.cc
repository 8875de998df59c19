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

std::optional<Bytes> Evaluator::RunOne(std::size_t index, const Candidate& candidate, Placer& placer) {
  placer.Reset();
  if (!candidate(index, placer)) return std::nullopt;
  state_.Offer(placer.offsets(), placer.height(), index + 1);
  return placer.height();
}

std::vector<std::optional<Bytes>> Evaluator::Run(std::size_t count, const Candidate& candidate) {
  std::vector<std::optional<Bytes>> heights(count);
  state_.NextBatch();
  std::atomic<std::size_t> next{0};
  const auto work = [&](int thread) {
    for (std::size_t i = next++; i < count && !state_.OutOfTime(); i = next++) {
      heights[i] = RunOne(i, candidate, PlacerOf(thread));
    }
  };
  const int helpers = static_cast<int>(std::min<std::size_t>(threads_, count)) - 1;
  std::vector<std::jthread> pool;
  for (int thread = 1; thread <= helpers; ++thread) pool.emplace_back(work, thread);
  work(0);
  pool.clear();
  return heights;
}

std::optional<Bytes> Evaluator::FirstFit(std::span<const BlockIndex> order) {
  return Run(1, [&](std::size_t, Placer& placer) { return placer.PlaceAll(order); }).front();
}

}  // namespace stalloc::planner
