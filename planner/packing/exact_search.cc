#include "planner/packing/exact_search.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <numeric>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "planner/packing/capacity_search.h"
#include "planner/packing/random.h"
#include "planner/packing/search_solver.h"
#include "planner/packing/size_first_fit.h"

namespace stalloc::planner {
namespace {

using Outcome = CapacitySearch::Outcome;

constexpr std::uint64_t kFirstNodeLimit = 2000;
constexpr std::size_t kFixedRankings = 8;
constexpr std::size_t kRankings = 16;  // a round; of any number of threads, so that the outcome does not depend on it

// What a block is ranked by; greater comes first.
struct Measures {
  double ticks = 0;      // length of its lifetimes
  double positions = 0;  // the same, in positions
  double bytes = 0;
  double load = 0;  // greatest load while it lives
};

std::vector<Measures> Measure(const Instance& instance) {
  const std::vector<Bytes> load = instance.Load();
  std::vector<Measures> measures(instance.size());
  for (BlockIndex i = 0; i < instance.size(); ++i) {
    const Block& block = instance.problem().blocks[i];
    Measures& m = measures[i];
    m.bytes = static_cast<double>(block.bytes);
    m.ticks = static_cast<double>(block.life.end - block.life.begin);
    if (block.second_life) m.ticks += static_cast<double>(block.second_life->end - block.second_life->begin);
    for (const Span& span : {instance[i].span, instance[i].second}) {
      m.positions += span.length();
      for (std::uint32_t p = span.begin; p < span.end; ++p) m.load = std::max(m.load, static_cast<double>(load[p]));
    }
  }
  return measures;
}

// Compared one after another.
using Key = std::array<double, 3>;

// Rankings that solved public instances soonest, the first of them most often; the published ones are among them.
Key FixedKey(const Measures& m, std::size_t ranking) {
  const double ticks_area = m.ticks * m.bytes;
  const double area = m.positions * m.bytes;
  const std::array<Key, kFixedRankings> keys = {{{area, m.load, m.bytes},
                                                 {m.positions, area, m.load},
                                                 {m.ticks, ticks_area, m.load},
                                                 {m.load, ticks_area, m.ticks},
                                                 {m.load, m.ticks, ticks_area},
                                                 {m.load, m.positions, m.bytes},
                                                 {ticks_area, m.load, m.bytes},
                                                 {m.load * m.ticks, m.bytes, m.positions}}};
  return keys[ranking];
}

// Length, size and load to powers of their own: between the extremes of the fixed rankings.
struct Powers {
  bool in_positions;
  double length;
  double bytes;
  double load;

  static Powers Draw(Random& random) {
    Powers powers;
    powers.in_positions = random.Below(3) != 0;
    powers.length = 2 * random.Unit();
    powers.bytes = 2 * random.Unit();
    powers.load = random.Below(2) == 0 ? 0 : 4 * random.Unit();
    return powers;
  }
  Key Of(const Measures& m) const {
    return {std::pow(in_positions ? m.positions : m.ticks, length) * std::pow(m.bytes, bytes) * std::pow(m.load, load),
            m.bytes, m.ticks};
  }
};

// The fixed rankings are plain in every other round and shaken in between.
std::vector<BlockIndex> Ranking(const std::vector<Measures>& measures, std::size_t ranking, bool plain,
                                std::uint64_t seed) {
  constexpr std::array<double, 4> kShakes = {0.02, 0.1, 0.3, 0.8};
  Random random(seed);
  const Powers powers = Powers::Draw(random);
  const bool fixed = ranking < kFixedRankings;
  const double shake = plain || (!fixed && random.Below(2) == 0) ? 0 : kShakes[random.Below(kShakes.size())];
  std::vector<Key> keys;
  keys.reserve(measures.size());
  for (const Measures& m : measures) {
    Key key = fixed ? FixedKey(m, ranking) : powers.Of(m);
    for (double& part : key) part *= 1.0 + shake * random.Unit();
    keys.push_back(key);
  }
  std::vector<BlockIndex> order(measures.size());
  std::iota(order.begin(), order.end(), BlockIndex{0});
  std::stable_sort(order.begin(), order.end(), [&](BlockIndex a, BlockIndex b) { return keys[a] > keys[b]; });
  return order;
}

// First fit from the bottom up gives the same offsets again, or lower ones.
StackOrder BottomUp(const std::vector<Offset>& offsets) {
  std::vector<BlockIndex> order(offsets.size());
  std::iota(order.begin(), order.end(), BlockIndex{0});
  std::stable_sort(order.begin(), order.end(), [&](BlockIndex a, BlockIndex b) { return offsets[a] < offsets[b]; });
  return StackOrder(order);
}

}  // namespace

class ExactSearch::Impl {
 public:
  Impl(Evaluator& evaluator, std::uint64_t seed)
      : evaluator_(evaluator),
        measures_(Measure(evaluator.instance())),
        random_(seed),
        possible_(evaluator.state().target()),
        searches_(static_cast<std::size_t>(evaluator.threads())) {}

  bool Round() {
    SearchState& state = evaluator_.state();
    Bytes from = possible_;  // of this round: below it the limit was met
    int undecided = 0;
    bool lowest = true;
    // The bound is most often reached; where it is not decided, a height half-way lowers the best, or raises the bound.
    while (undecided < 2 && !state.Done() && from < state.height()) {
      const Bytes highest = state.height() - 1;
      const Bytes capacity = std::exchange(lowest, false) ? from : from + (highest - from) / 2;
      const Outcome outcome = Try(capacity);
      if (outcome == Outcome::kFound) continue;
      if (outcome == Outcome::kInfeasible) possible_ = capacity + 1;
      if (outcome == Outcome::kLimit) ++undecided;
      from = capacity + 1;
    }
    ++rounds_;
    node_limit_ += node_limit_ / 2;
    if (possible_ < state.height()) return state.AtTarget();
    state.ProveBound(possible_);
    return true;
  }

 private:
  // All rankings on all threads; the first in order that decides is taken.
  Outcome Try(Bytes capacity) {
    const std::uint64_t seed = random_.Next();
    std::array<Outcome, kRankings> outcomes;
    outcomes.fill(Outcome::kLimit);
    std::array<std::vector<Offset>, kRankings> found;
    std::atomic<std::size_t> next{0};
    std::atomic<std::size_t> decided{kRankings};  // the least ranking that is decided; later ones need not go on
    const auto work = [&](std::size_t thread) {
      for (std::size_t i = next++; i < decided; i = next++) {
        CapacitySearch& search = SearchOf(thread);
        outcomes[i] = search.Run(capacity, Ranking(measures_, i, rounds_ % 2 == 0, seed + i), node_limit_,
                                 [&] { return decided < i || evaluator_.state().OutOfTime(); });
        if (outcomes[i] == Outcome::kLimit) continue;
        if (outcomes[i] == Outcome::kFound) found[i] = search.offsets();
        std::size_t least = decided;
        while (i < least && !decided.compare_exchange_weak(least, i)) {
        }
      }
    };
    std::vector<std::jthread> pool;
    for (std::size_t thread = 1; thread < searches_.size(); ++thread) pool.emplace_back(work, thread);
    work(0);
    pool.clear();
    if (decided == kRankings) return Outcome::kLimit;
    if (outcomes[decided] == Outcome::kFound) evaluator_.FirstFit(BottomUp(found[decided]));
    return outcomes[decided];
  }

  CapacitySearch& SearchOf(std::size_t thread) {
    if (searches_[thread] == nullptr) searches_[thread] = std::make_unique<CapacitySearch>(evaluator_.instance());
    return *searches_[thread];
  }

  Evaluator& evaluator_;
  const std::vector<Measures> measures_;
  Random random_;
  Bytes possible_;  // every height below it is proved impossible
  std::uint64_t node_limit_ = kFirstNodeLimit;
  int rounds_ = 0;
  std::vector<std::unique_ptr<CapacitySearch>> searches_;  // one a thread, made when first needed
};

ExactSearch::ExactSearch(Evaluator& evaluator, std::uint64_t seed) : impl_(std::make_unique<Impl>(evaluator, seed)) {}
ExactSearch::~ExactSearch() = default;
bool ExactSearch::Round() { return impl_->Round(); }

std::unique_ptr<Solver> MakeExactSearch() {
  return MakeSearchSolver("exact_search", [](Evaluator& evaluator, const SolveOptions& options) {
    SolveBySize(evaluator);
    if (evaluator.instance().size() > kMaxExactBlocks) return;
    ExactSearch search(evaluator, options.seed);
    for (int round = 0; round < kMaxExactRounds && !evaluator.state().Done() && !search.Round(); ++round) {
    }
  });
}

}  // namespace stalloc::planner
