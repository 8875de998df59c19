#include "planner/packing/squeaky_wheel.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "planner/packing/compaction.h"
#include "planner/packing/random.h"
#include "planner/packing/search_solver.h"
#include "planner/packing/size_first_fit.h"

namespace stalloc::planner {
namespace {

constexpr std::size_t kNudges = 4;  // of any number of threads, so that the outcome does not depend on it

// How one candidate moves offenders forward.
struct Nudge {
  Bytes threshold;     // stacks whose top passes it are moved
  double factor;       // of their rank in the order; negative: a random factor for each
  double probability;  // that an offender is moved at all
  std::uint64_t seed;
};

Nudge DrawNudge(Random& random, Bytes bound, Bytes height) {
  constexpr std::array<double, 6> kFactors = {0.0, 0.5, 0.8, 0.9, 0.97, -1.0};
  // Either all that pass the bound, or only the worst.
  const double part = random.Below(2) == 0 ? 0.0 : random.Unit();
  return {.threshold = bound + static_cast<Bytes>(part * static_cast<double>(height - bound)),
          .factor = kFactors[random.Below(kFactors.size())],
          .probability = random.Below(2) == 0 ? 1.0 : random.Unit(),
          .seed = random.Next()};
}

// The wheel as published: all that pass the bound move, by the same share.
std::array<Nudge, kNudges> PlainNudges(Bytes bound) {
  std::array<Nudge, kNudges> nudges;
  for (std::size_t i = 0; i < kNudges; ++i) {
    constexpr std::array<double, kNudges> kFactors = {0.9, 0.97, 0.8, 0.0};
    nudges[i] = {.threshold = bound, .factor = kFactors[i], .probability = 1.0, .seed = 0};
  }
  return nudges;
}

std::array<Nudge, kNudges> RandomNudges(Random& random, Bytes bound, Bytes height) {
  std::array<Nudge, kNudges> nudges;
  for (Nudge& nudge : nudges) nudge = DrawNudge(random, bound, height);
  return nudges;
}

Bytes Top(const Instance& instance, const Incumbent& base, std::size_t stack) {
  Bytes top = 0;
  for (const BlockIndex block : base.order[stack]) {
    top = std::max(top, base.offsets[block] + instance[block].bytes);
  }
  return top;
}

StackOrder Nudged(const Instance& instance, const Incumbent& base, const Nudge& nudge) {
  Random random(nudge.seed);
  const std::size_t count = base.order.size();
  std::vector<double> rank(count);
  for (std::size_t i = 0; i < count; ++i) {
    rank[i] = static_cast<double>(i);
    if (Top(instance, base, i) <= nudge.threshold) continue;
    if (nudge.probability < 1.0 && random.Unit() >= nudge.probability) continue;
    rank[i] *= nudge.factor < 0 ? random.Unit() : nudge.factor;
  }
  std::vector<std::uint32_t> by_rank(count);
  std::iota(by_rank.begin(), by_rank.end(), std::uint32_t{0});
  std::stable_sort(by_rank.begin(), by_rank.end(), [&](std::uint32_t a, std::uint32_t b) { return rank[a] < rank[b]; });
  StackOrder order;
  for (const std::uint32_t stack : by_rank) order.AppendStack(base.order[stack]);
  return order;
}

}  // namespace

void SearchSqueakyWheel(Evaluator& evaluator, std::uint64_t seed, int patience) {
  const Instance& instance = evaluator.instance();
  SearchState& state = evaluator.state();
  Random random(seed);
  Incumbent base = state.best();
  bool plain = true;  // due on every new base
  for (int idle = 0; idle < patience && !state.Done(); ++idle) {
    const std::array<Nudge, kNudges> nudges = std::exchange(plain, false)
                                                  ? PlainNudges(instance.load_bound())
                                                  : RandomNudges(random, instance.load_bound(), base.height);
    const std::vector<std::optional<Packing>> packings =
        evaluator.Run(kNudges, [&](std::size_t i) { return Nudged(instance, base, nudges[i]); });
    if (state.height() < base.height) {
      base = state.best();
      idle = -1;
      plain = true;
      continue;
    }
    // As low as the best, but another order: walk on from there.
    for (std::size_t i = 0; i < kNudges; ++i) {
      if (!packings[i]) continue;
      base = {packings[i]->offsets, packings[i]->height, Nudged(instance, base, nudges[i])};
      break;
    }
  }
}

std::unique_ptr<Solver> MakeSqueakyWheel() {
  return MakeSearchSolver("squeaky_wheel", [](Evaluator& evaluator, const SolveOptions& options) {
    SolveBySize(evaluator);
    SearchSqueakyWheel(evaluator, options.seed, 100);
  });
}

}  // namespace stalloc::planner
