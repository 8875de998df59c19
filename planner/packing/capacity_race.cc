#include "planner/packing/capacity_race.h"

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

CapacityRace::Outcome CapacityRace::Run(Bytes capacity, std::uint64_t node_limit, bool plain,
                                        const std::function<bool()>& should_stop) {
  const std::uint64_t seed = random_.Next();
  std::array<Outcome, Rankings::kRound> outcomes;
  outcomes.fill(Outcome::kLimit);
  std::atomic<std::size_t> next{0};
  std::atomic<std::size_t> decided{Rankings::kRound};  // the least ranking that is decided; later ones need not go on
  const auto work = [&] {
    for (std::size_t i = next++; i < decided; i = next++) {
      Random random(seed + i);
      outcomes[i] = SearchOf(i).Run(capacity, rankings_.Draw(i, plain, random), Share(i, node_limit),
                                    [&] { return decided < i || should_stop(); });
      if (outcomes[i] == Outcome::kLimit) continue;
      std::size_t least = decided;
      while (i < least && !decided.compare_exchange_weak(least, i)) {
      }
    }
  };
  std::vector<std::jthread> pool;
  for (int thread = 1; thread < threads_; ++thread) pool.emplace_back(work);
  work();
  pool.clear();
  if (decided == Rankings::kRound) return Outcome::kLimit;
  if (outcomes[decided] == Outcome::kFound) offsets_ = searches_[decided]->Offsets();
  // How far the later ones came is a matter of speed.
  for (std::size_t i = decided + 1; i < Rankings::kRound; ++i) {
    if (searches_[i] != nullptr) searches_[i]->Forget();
  }
  return outcomes[decided];
}

CapacitySearch::Outcome FitBelow(const Instance& instance, FrozenOffsets frozen, Bytes capacity,
                                 std::uint64_t node_limit, const std::function<bool()>& should_stop,
                                 std::vector<Offset>& offsets) {
  using Outcome = CapacitySearch::Outcome;
  constexpr std::uint64_t kFirstLimit = 256;
  const SearchBlocks blocks(instance, frozen);
  const Rankings rankings(blocks);
  Random random(1);
  CapacitySearch search(blocks);
  std::uint64_t spent = 0;
  for (std::uint64_t limit = kFirstLimit; spent < node_limit; limit *= 2) {
    for (std::size_t i = 0; i < Rankings::kRound && spent < node_limit; ++i) {
      const Ranking ranking = rankings.Draw(i, limit == kFirstLimit, random);
      const Outcome outcome = search.Run(capacity, ranking, std::min(Share(i, limit), node_limit - spent), should_stop);
      spent += search.nodes() + 1;
      if (outcome == Outcome::kFound) offsets = search.Offsets();
      if (outcome != Outcome::kLimit) return outcome;
      if (should_stop()) return Outcome::kLimit;
    }
  }
  return Outcome::kLimit;
}

}  // namespace stalloc::planner
