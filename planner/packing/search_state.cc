#include "planner/packing/search_state.h"

#include <algorithm>
#include <chrono>

namespace stalloc::planner {

SearchState::SearchState(const Instance& instance, const SolveOptions& options)
    : options_(options),
      target_(std::max({instance.load_bound(), options.lower_bound, options.capacity.value_or(0)})) {}

bool SearchState::OutOfTime() const {
  if (height() == kNothingYet) return false;
  if (options_.stop != nullptr && options_.stop->load(std::memory_order_relaxed)) return true;
  return options_.deadline != std::chrono::steady_clock::time_point::max() &&
         std::chrono::steady_clock::now() >= options_.deadline;
}

bool SearchState::Offer(const std::vector<Offset>& offsets, Bytes height, std::uint64_t ticket) {
  const std::lock_guard lock(mutex_);
  const Bytes best = this->height();
  if (height > best || (height == best && ticket >= ticket_)) return false;
  offsets_ = offsets;
  ticket_ = ticket;
  height_.store(height, std::memory_order_relaxed);
  if (height == best) return false;
  if (options_.on_progress) options_.on_progress(height);
  return true;
}

void SearchState::NextBatch() {
  const std::lock_guard lock(mutex_);
  ticket_ = 0;
}

Packing SearchState::best() const {
  const std::lock_guard lock(mutex_);
  return {offsets_, offsets_.empty() ? 0 : height()};
}

}  // namespace stalloc::planner
