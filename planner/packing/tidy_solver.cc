#include "planner/packing/tidy_solver.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "planner/packing/tidy.h"

namespace stalloc::planner {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kMostForTidying{500};

Clock::time_point SearchDeadline(Clock::time_point deadline) {
  const Clock::time_point now = Clock::now();
  if (deadline <= now) return deadline;
  return deadline - std::min<Clock::duration>((deadline - now) / 10, kMostForTidying);
}

class TidySolver final : public Solver {
 public:
  explicit TidySolver(std::unique_ptr<Solver> solver) : solver_(std::move(solver)) {}

  std::string_view name() const override { return solver_->name(); }

  Packing Solve(const Problem& problem, const SolveOptions& options) override {
    SolveOptions search = options;
    search.deadline = SearchDeadline(options.deadline);
    TidyOptions tidy;
    tidy.deadline = options.deadline;
    tidy.stop = options.stop;
    tidy.cycle = options.cycle;
    return Tidy(problem, solver_->Solve(problem, search), tidy);
  }

 private:
  const std::unique_ptr<Solver> solver_;
};

}  // namespace

std::unique_ptr<Solver> MakeTidySolver(std::unique_ptr<Solver> solver) {
  return std::make_unique<TidySolver>(std::move(solver));
}

}  // namespace stalloc::planner
