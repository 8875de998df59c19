// Hill climb after TVM's unified static memory planner (tir/usmp/algo/hill_climb.cc): first fit in order of size; then
// a block that touches the top changes places in the order with a random neighbour (alive at the same time) that was
// placed before it; the new order stays unless it is higher. Goes on until the stop flag, the bound or the capacity.
#include <algorithm>
#include <optional>
#include <utility>

#include "bench/plan_quality/baselines/baselines.h"
#include "bench/plan_quality/baselines/placement.h"
#include "planner/packing/problem/random.h"

namespace stalloc::planner {
namespace {

bool Meet(const Block& a, const Block& b) {
  const auto meets = [&](const Lifetime& life) {
    return life.Overlaps(b.life) || (b.second_life && life.Overlaps(*b.second_life));
  };
  return meets(a.life) || (a.second_life && meets(*a.second_life));
}

class Climb {
 public:
  Climb(const Problem& problem, const SolveOptions& options)
      : problem_(problem),
        options_(options),
        target_(std::max({LoadBound(problem), options.lower_bound, options.capacity.value_or(0)})),
        index_(problem),
        random_(options.seed),
        order_(SortedBlocks(problem, [](const Block& a, const Block& b) { return a.bytes > b.bytes; })) {}

  Packing Run() {
    std::optional<Packing> current = Place();
    if (!current) return {};
    Report(*current);
    while (current->height > target_ && !IsStopped(options_)) {
      const auto [earlier, later] = PickSwap(*current);
      std::swap(order_[earlier], order_[later]);
      std::optional<Packing> next = Place();
      if (!next) break;
      if (next->height > current->height) {
        std::swap(order_[earlier], order_[later]);
        continue;
      }
      if (next->height < current->height) Report(*next);
      current = std::move(next);
    }
    return *std::move(current);
  }

 private:
  std::optional<Packing> Place() { return PlaceInOrder(problem_, order_, GapChoice::kLowest, options_, index_); }

  void Report(const Packing& packing) const {
    if (options_.on_progress) options_.on_progress(packing.height);
  }

  // Places in the order: of a block that touches the top, and of a neighbour before it. Above the load bound the former
  // stands on a neighbour.
  std::pair<std::size_t, std::size_t> PickSwap(const Packing& packing) {
    std::vector<std::size_t> tops;
    for (std::size_t place = 0; place < order_.size(); ++place) {
      const std::size_t block = order_[place];
      if (packing.offsets[block] + problem_.blocks[block].bytes == packing.height) tops.push_back(place);
    }
    const std::size_t top = tops[random_.Below(tops.size())];
    std::vector<std::size_t> neighbours;
    for (std::size_t place = 0; place < top; ++place) {
      if (Meet(problem_.blocks[order_[place]], problem_.blocks[order_[top]])) neighbours.push_back(place);
    }
    return {neighbours[random_.Below(neighbours.size())], top};
  }

  const Problem& problem_;
  const SolveOptions& options_;
  const Bytes target_;
  GapIndex index_;
  Random random_;
  BlockOrder order_;
};

class UsmpHillClimb final : public Solver {
 public:
  [[nodiscard]] std::string_view name() const override { return "usmp_hill_climb"; }
  [[nodiscard]] Packing Solve(const Problem& problem, const SolveOptions& options) override {
    return Climb(problem, options).Run();
  }
};

}  // namespace

std::unique_ptr<Solver> MakeUsmpHillClimb() { return std::make_unique<UsmpHillClimb>(); }

}  // namespace stalloc::planner
