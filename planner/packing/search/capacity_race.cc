#include "planner/packing/search/capacity_race.h"

#include <algorithm>
#include <atomic>
#include <thread>

namespace stalloc::planner {
namespace {

std::uint64_t Share(std::size_t ranking, std::uint64_t node_limit) {
  return ranking < Rankings::kLeading ? node_limit : node_limit / 4;
}

}  // namespace

CapacityRace::CapacityRace(const SearchBlocks& blocks, std::uint64_t seed, int threads)
    : blocks_(blocks), rankings_(blocks), random_(seed), threads_(threads) {}

CapacitySearch& CapacityRace::SearchOf(std::size_t index) {
  if (searches_[index] == nullptr) searches_[index] = std::make_unique<CapacitySearch>(blocks_);
  return *searches_[index];
}

CapacityRace::Outcome CapacityRace::Run(Bytes capacity, std::uint64_t node_limit, bool plain, SearchState& state) {
  const std::uint64_t seed = random_.Next();
  const Work share = state.WorkLeft() / (Rankings::kRound + 3 * Rankings::kLeading);
  std::array<Outcome, Rankings::kRound> outcomes;
  outcomes.fill(Outcome::kLimit);
  std::atomic<std::size_t> next{0};
  std::atomic<std::size_t> decided{Rankings::kRound};  // the least ranking that is decided; later ones need not go on
  const auto work = [&] {
    for (std::size_t i = next++; i < decided; i = next++) {
      Random random(seed + i);
      const CapacitySearch::Limits limits{.nodes = Share(i, node_limit),
                                          .work = i < Rankings::kLeading ? 4 * share : share,
                                          .should_stop = [&, i] { return decided < i || state.budget().IsStopped(); }};
      outcomes[i] = SearchOf(i).Run(capacity, rankings_.Draw(i, plain, random), limits);
      if (outcomes[i] == Outcome::kLimit) continue;
      std::size_t least = decided;
      while (i < least && !decided.compare_exchange_weak(least, i)) {
      }
    }
  };
  {
    std::vector<std::jthread> pool;
    for (int thread = 1; thread < threads_; ++thread) pool.emplace_back(work);
    work();
  }
  const std::size_t end = decided == Rankings::kRound ? Rankings::kRound : decided + 1;
  for (std::size_t i = 0; i < end; ++i) state.budget().Charge(searches_[i]->work());
  if (decided == Rankings::kRound) return Outcome::kLimit;
  if (outcomes[decided] == Outcome::kFound) offsets_ = searches_[decided]->offsets();
  // How far the later ones came is a matter of speed.
  for (std::size_t i = end; i < Rankings::kRound; ++i) {
    if (searches_[i] != nullptr) searches_[i]->Forget();
  }
  return outcomes[decided];
}

}  // namespace stalloc::planner
