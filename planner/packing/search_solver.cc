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
    state.budget().Charge(kWorkOfSort * instance.size());
    Evaluator evaluator(instance, state, options.threads);
    search_(evaluator, options);
    return {state.best().offsets, state.height(), state.proved_bound(), state.budget().spent()};
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
