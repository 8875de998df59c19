#include "planner/packing/tidy_solver.h"

#include <algorithm>
#include <utility>

#include "planner/packing/tidy.h"

namespace stalloc::planner {
namespace {

class TidySolver final : public Solver {
 public:
  explicit TidySolver(std::unique_ptr<Solver> solver) : solver_(std::move(solver)) {}

  std::string_view name() const override { return solver_->name(); }

  Packing Solve(const Problem& problem, const SolveOptions& options) override {
    SolveOptions search = options;
    search.work = options.work - std::min(options.work / 10, kMostPlacements * kWorkOfPlacement);
    Packing packing = solver_->Solve(problem, search);
    TidyOptions tidy{.stop = options.stop, .cycle = options.cycle};
    const Work left = options.work - std::min(options.work, packing.work);
    tidy.placements = std::min<std::size_t>(left / kWorkOfPlacement, kMostPlacements);
    return Tidy(problem, std::move(packing), tidy);
  }

 private:
  const std::unique_ptr<Solver> solver_;
};

}  // namespace

std::unique_ptr<Solver> MakeTidySolver(std::unique_ptr<Solver> solver) {
  return std::make_unique<TidySolver>(std::move(solver));
}

}  // namespace stalloc::planner
