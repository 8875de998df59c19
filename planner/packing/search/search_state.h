// SearchState: the best packing so far and the reasons to stop. Of the one thread that leads a search; what it hands
// out to others reads none of it. Bytes.
#pragma once

#include <optional>
#include <vector>

#include "planner/packing/problem/instance.h"
#include "planner/packing/problem/work.h"
#include "planner/packing/search/solver.h"
#include "planner/packing/search/stack_order.h"

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

  // With a budget of options.work.
  SearchState(const Instance& instance, const SolveOptions& options);
  // A search that is part of another one spends its budget.
  SearchState(const Instance& instance, const SolveOptions& options, Budget& budget);
  // The options of one: what lowers it is nobody's progress yet, and below the whole's target it gains nothing.
  [[nodiscard]] SolveOptions OptionsOfPart(SolveOptions options) const;

  [[nodiscard]] Bytes height() const { return best_.height; }
  [[nodiscard]] const Incumbent& best() const { return best_; }
  // Height at which nothing is left to gain, or that is low enough for the caller.
  [[nodiscard]] Bytes target() const { return target_; }
  // Going below `height` is of no use.
  void RaiseTarget(Bytes height);
  [[nodiscard]] bool AtTarget() const { return height() <= target(); }
  // It is proved that no packing is lower than `bound`.
  void ProveBound(Bytes bound);
  [[nodiscard]] Bytes proved_bound() const { return proved_bound_; }

  [[nodiscard]] Budget& budget() { return *budget_; }
  // The budget is spent, or a stop was requested; but never before there is a packing to return.
  [[nodiscard]] bool IsOver() const { return height() != kNothingYet && budget_->IsOver(); }
  // What a part of the search may take: all that is left, or as much as a first packing needs.
  [[nodiscard]] Work WorkLeft() const { return height() == kNothingYet ? kUnlimitedWork : budget_->left(); }
  [[nodiscard]] bool Done() const { return AtTarget() || IsOver(); }

  // Keeps the packing if it is lower than the best. Returns whether it was.
  bool Offer(std::vector<Offset> offsets, Bytes height, StackOrder order);

 private:
  const SolveOptions& options_;
  std::optional<Budget> own_budget_;
  Budget* budget_;
  Bytes target_;
  Bytes proved_bound_;
  Incumbent best_;
};

}  // namespace stalloc::planner
