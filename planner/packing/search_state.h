// SearchState: the best packing so far and the reasons to stop, shared by all threads of one solve.
//
// Determinism: candidates carry tickets in the order in which they were conceived. Among equal heights the lower ticket
// of the running batch wins, and an evaluation is aborted only when it is strictly worse than the best; so the outcome
// of a batch does not depend on which thread was faster. Thread-safe. Bytes.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "planner/packing/instance.h"
#include "planner/packing/solver.h"
#include "planner/packing/stack_order.h"

namespace stalloc::planner {

// A packing with the order that gave it.
struct Incumbent {
  std::vector<Offset> offsets;
  Bytes height = ~Bytes{0};
  StackOrder order;
};

class SearchState {
 public:
  static constexpr Bytes kNothingYet = ~Bytes{0};

  SearchState(const Instance& instance, const SolveOptions& options);

  [[nodiscard]] Bytes height() const { return height_.load(std::memory_order_relaxed); }
  // Height at which nothing is left to gain, or that is low enough for the caller.
  [[nodiscard]] Bytes target() const { return target_.load(std::memory_order_relaxed); }
  // Going below `height` is of no use.
  void RaiseTarget(Bytes height);
  [[nodiscard]] bool AtTarget() const { return height() <= target(); }
  // It is proved that no packing is lower than `bound`.
  void ProveBound(Bytes bound);
  [[nodiscard]] Bytes proved_bound() const { return proved_bound_.load(std::memory_order_relaxed); }
  // Deadline passed or Stop() asked for.
  [[nodiscard]] bool TimeIsUp() const;
  // The same, but never before there is a packing to return.
  [[nodiscard]] bool OutOfTime() const { return height() != kNothingYet && TimeIsUp(); }
  [[nodiscard]] bool Done() const { return AtTarget() || OutOfTime(); }

  // Keeps the packing if it is lower than the best, or as low with a lower ticket of the same batch. Returns whether
  // the height was lowered.
  bool Offer(const std::vector<Offset>& offsets, Bytes height, const StackOrder& order, std::uint64_t ticket);
  // A new batch: equal heights found from now on leave the best alone.
  void NextBatch();

  [[nodiscard]] Incumbent best() const;

 private:
  const SolveOptions& options_;
  std::atomic<Bytes> target_;
  std::atomic<Bytes> proved_bound_;
  std::atomic<Bytes> height_{kNothingYet};
  mutable std::mutex mutex_;
  Incumbent best_;            // guarded by mutex_
  std::uint64_t ticket_ = 0;  // guarded by mutex_
};

}  // namespace stalloc::planner
