#include "planner/packing/search_solver.h"

#include <utility>

namespace stalloc::planner {
namespace {

class SearchSolver final : public Solver {
 public:
  SearchSolver(std::string name, Search search) : name_(std::move(name)), search_(std::move(search)) {}

  std::string_view name() const override { return name_; }

  Packing Solve(const Problem& problem, const SolveOptions& options) override {
    if (problem.blocks.empty()) return {};
    const Instance instance(problem);
    SearchState state(instance, options);
    Evaluator evaluator(instance, state, options.threads);
    search_(evaluator, options);
    Incumbent best = state.best();
    return {std::move(best.offsets), best.height, state.proved_bound()};
  }

 private:
  const std::string name_;
  const Search search_;
};

}  // namespace

std::unique_ptr<Solver> MakeSearchSolver(std::string name, Search search) {
  return std::make_unique<SearchSolver>(std::move(name), std::move(search));
}

}  // namespace stalloc::planner
