#include "planner/packing/search_state.h"

#include <algorithm>
#include <chrono>

#include "planner/packing/aligned_load.h"

namespace stalloc::planner {

SearchState::SearchState(const Instance& instance, const SolveOptions& options)
    : options_(options),
      target_(std::max(options.lower_bound, options.capacity.value_or(0))),
      proved_bound_(AlignedLoadBound(instance)) {
  RaiseTarget(proved_bound_);
}

void SearchState::RaiseTarget(Bytes height) {
  const std::lock_guard lock(mutex_);
  target_ = std::max(target_.load(), height);
}

void SearchState::ProveBound(Bytes bound) {
  {
    const std::lock_guard lock(mutex_);
    proved_bound_ = std::max(proved_bound_.load(), bound);
  }
  RaiseTarget(bound);
}

bool SearchState::TimeIsUp() const {
  if (options_.stop != nullptr && options_.stop->load(std::memory_order_relaxed)) return true;
  return options_.deadline != std::chrono::steady_clock::time_point::max() &&
         std::chrono::steady_clock::now() >= options_.deadline;
}

bool SearchState::Offer(const std::vector<Offset>& offsets, Bytes height, const StackOrder& order,
                        std::uint64_t ticket) {
  const std::lock_guard lock(mutex_);
  const Bytes previous = best_.height;
  if (height > previous || (height == previous && ticket >= ticket_)) return false;
  best_ = {offsets, height, order};
  ticket_ = ticket;
  height_.store(height, std::memory_order_relaxed);
  if (height == previous) return false;
  if (options_.on_progress) options_.on_progress(height);
  return true;
}

void SearchState::NextBatch() {
  const std::lock_guard lock(mutex_);
  ticket_ = 0;
}

Incumbent SearchState::best() const {
  const std::lock_guard lock(mutex_);
  return best_;
}

}  // namespace stalloc::planner
