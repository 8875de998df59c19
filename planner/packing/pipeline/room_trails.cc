#include "planner/packing/pipeline/room_trails.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <map>

#include "planner/packing/problem/random.h"

namespace stalloc::planner {
namespace {

// Lengths change by even numbers where earlier rounds are touched too: what was odd then stays odd.
std::uint32_t EvenAbove(std::uint32_t length) { return length + (length & 1); }

// Whether tensors may fill a range of the length.
bool IsFillable(const TrailProblem& problem, std::uint32_t length) {
  return length == 0 || length >= ((length & 1) != 0 ? problem.least_odd : problem.least_even);
}

bool HoldsCritical(const TrailProblem& problem, std::uint32_t length) {
  return length >= problem.critical && IsFillable(problem, length - problem.critical);
}

// The least even one that holds a critical piece.
std::uint32_t SeedLength(const TrailProblem& problem) {
  std::uint32_t length = EvenAbove(problem.critical);
  while (!HoldsCritical(problem, length)) length += 2;
  return length;
}

// What guides the greedy choice. Costs are in units.
struct Weights {
  double segment = 20;    // of a new segment
  double scarcity = 0.3;  // how much dearer a chain's last units are than its first
  double odd = 0;         // of each segment of odd length
  double noise = 0;       // added to each cost, at most
};

Weights DrawWeights(Random& random) {
  return {.segment = 10 + 20 * random.Unit(),
          .scarcity = random.Unit(),
          .odd = 2 * random.Unit(),
          .noise = 4 * random.Unit()};
}

// The trails up to some round. Copied to come back to it.
struct State {
  std::vector<TrailSegment> segments;
  std::vector<std::uint32_t> now;  // of a segment: its length
  std::vector<std::vector<std::uint32_t>> of_chain;
  std::vector<std::uint32_t> left;  // of a chain: units that no segment has yet
  // Of a chain: segments of odd length; where passes are odd, what is left is one more.
  std::vector<std::uint32_t> odd;

  explicit State(const TrailProblem& problem)
      : of_chain(problem.chains + 1),
        left(problem.chains + 1, problem.pass),
        odd(problem.chains + 1, problem.pass & 1) {
    left[problem.chains] = problem.room;
    odd[problem.chains] = 0;
  }
};

// Serves one round.
class Step {
 public:
  Step(const TrailProblem& problem, const Weights& weights, State& state, Random& random)
      : problem_(problem), weights_(weights), state_(state), random_(random), seed_length_(SeedLength(problem)) {}

  // The room goes over from one chain to the other; none where no seam will do.
  [[nodiscard]] std::optional<SeamMove> Serve(std::uint32_t from, std::uint32_t to) {
    for (const std::uint32_t segment : state_.of_chain[from]) ConsiderSegment(segment, to);
    ConsiderNewFrom(from, to);
    if (best_.cost == kNone) return std::nullopt;
    return Apply(from, to);
  }

  // One trail of the closed walk, gone round again until there are so many segments.
  void Plant(const std::vector<std::uint32_t>& walk, std::size_t count) {
    std::uint32_t before = kNoSegment;
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint32_t chain = walk[i % (walk.size() - 1)];
      if (state_.left[chain] < seed_length_) return;
      const std::uint32_t segment = Append(chain, seed_length_);
      if (before != kNoSegment) Join(before, segment, Side::kRight);
      before = segment;
    }
  }

 private:
  enum class Side : std::uint8_t { kLeft, kRight };

  static constexpr double kNone = std::numeric_limits<double>::infinity();
  struct Option {
    double cost = kNone;
    std::uint32_t from = kNoSegment;  // kNoSegment: a new segment
    std::uint32_t to = kNoSegment;    // kNoSegment: a new segment
    std::uint32_t added = 0;          // to `from`, at first
    Side side = Side::kRight;         // of `from`, where `to` is
  };

  [[nodiscard]] std::uint32_t Neighbour(std::uint32_t segment, Side side) const {
    const TrailSegment& entry = state_.segments[segment];
    return side == Side::kLeft ? entry.left : entry.right;
  }

  [[nodiscard]] double Price(std::uint32_t chain, std::uint32_t units) const {
    const double taken = problem_.pass - std::min(state_.left[chain], problem_.pass);
    const double after = taken + units;
    return units + weights_.scarcity * (after * after - taken * taken) / problem_.pass;
  }

  // Whether a pass has odd tensors enough when its critical piece lies in a segment of this parity.
  [[nodiscard]] bool CriticalFits(std::uint32_t to, bool odd_segment) const {
    const std::uint32_t others = state_.odd[to] - (odd_segment ? 1 : 0);
    const bool mends = odd_segment != ((problem_.odd_critical & 1) != 0);
    return others + problem_.odd_critical + (mends ? 1 : 0) <= problem_.odd_tensors;
  }

  // Of segments of odd length, once one that is `length` long has lost the room, and `others` are as they are.
  [[nodiscard]] std::optional<double> OddCost(std::uint32_t others, std::uint32_t length) const {
    const std::uint32_t odd = others + ((length - problem_.room) & 1);
    if (odd > problem_.odd_tensors) return std::nullopt;
    return weights_.odd * odd;
  }

  // What remains must hold a critical piece, so that the seam on its other side can still move.
  [[nodiscard]] bool MayRemain(std::uint32_t length, bool is_end) const {
    if (problem_.late > 0) return length >= problem_.late && HoldsCritical(problem_, length - problem_.late);
    return is_end ? IsFillable(problem_, length) : HoldsCritical(problem_, length);
  }

  void Consider(Option option) {
    option.cost += weights_.noise * random_.Unit();
    if (option.cost < best_.cost) best_ = option;
  }

  void ConsiderSegment(std::uint32_t segment, std::uint32_t to) {
    const std::uint32_t from = state_.segments[segment].chain;
    const std::uint32_t length = state_.now[segment];
    const std::optional<double> odd_cost = OddCost(state_.odd[from] - (length & 1), std::max(length, problem_.room));
    if (!odd_cost) return;
    for (const Side side : {Side::kRight, Side::kLeft}) {
      const std::uint32_t neighbour = Neighbour(segment, side);
      const bool is_end = Neighbour(segment, side == Side::kRight ? Side::kLeft : Side::kRight) == kNoSegment;
      std::uint32_t added = length >= problem_.room ? 0 : EvenAbove(problem_.room - length);
      while (!MayRemain(length + added - problem_.room, is_end)) added += 2;
      if (added > state_.left[from]) continue;
      // Of equals, the longest.
      const double cost = Price(from, added) + *odd_cost - 1e-3 * length;
      if (neighbour == kNoSegment) {
        if (state_.left[to] < seed_length_ || !CriticalFits(to, false)) continue;
        Consider({weights_.segment + Price(to, seed_length_) + cost, segment, kNoSegment, added, side});
      } else if (state_.segments[neighbour].chain == to && HoldsCritical(problem_, state_.now[neighbour]) &&
                 CriticalFits(to, state_.now[neighbour] & 1)) {
        Consider({cost, segment, neighbour, added, side});
      }
    }
  }

  void ConsiderNewFrom(std::uint32_t from, std::uint32_t to) {
    const std::uint32_t length = LengthOfNewFrom(from);
    if (state_.left[from] < length) return;
    const std::optional<double> odd_cost = OddCost(state_.odd[from], length);
    if (!odd_cost) return;
    const double cost = weights_.segment + Price(from, length) + *odd_cost;
    for (const std::uint32_t segment : state_.of_chain[to]) {
      if (!HoldsCritical(problem_, state_.now[segment]) || !CriticalFits(to, state_.now[segment] & 1)) continue;
      if (Neighbour(segment, Side::kRight) == kNoSegment) {
        Consider({cost, kNoSegment, segment, 0, Side::kLeft});
      } else if (Neighbour(segment, Side::kLeft) == kNoSegment) {
        Consider({cost, kNoSegment, segment, 0, Side::kRight});
      }
    }
    if (state_.left[to] < seed_length_ || !CriticalFits(to, false)) return;
    Consider({cost + Price(to, seed_length_), kNoSegment, kNoSegment, 0, Side::kRight});
  }

  // The first round's room is what it is.
  [[nodiscard]] std::uint32_t LengthOfNewFrom(std::uint32_t from) const {
    std::uint32_t length = problem_.room;
    if (from == problem_.chains) return length;
    length = EvenAbove(length + problem_.late);
    while (!MayRemain(length - problem_.room, true)) length += 2;
    return length;
  }

  std::uint32_t Append(std::uint32_t chain, std::uint32_t length) {
    const auto segment = static_cast<std::uint32_t>(state_.segments.size());
    state_.segments.push_back({.chain = chain, .length = length});
    state_.now.push_back(length);
    state_.of_chain[chain].push_back(segment);
    state_.left[chain] -= length;
    state_.odd[chain] += length & 1;
    return segment;
  }

  void Lengthen(std::uint32_t segment, std::uint32_t units) {
    state_.segments[segment].length += units;
    state_.now[segment] += units;
    state_.left[state_.segments[segment].chain] -= units;
  }

  void Resize(std::uint32_t segment, std::uint32_t length) {
    std::uint32_t& odd = state_.odd[state_.segments[segment].chain];
    odd -= state_.now[segment] & 1;
    odd += length & 1;
    state_.now[segment] = length;
  }

  void Join(std::uint32_t from, std::uint32_t to, Side side) {
    const std::uint32_t left = side == Side::kRight ? from : to;
    const std::uint32_t right = side == Side::kRight ? to : from;
    state_.segments[left].right = right;
    state_.segments[right].left = left;
  }

  SeamMove Apply(std::uint32_t from_chain, std::uint32_t to_chain) {
    SeamMove move{best_.from, best_.to};
    if (move.from == kNoSegment) move.from = Append(from_chain, LengthOfNewFrom(from_chain));
    if (move.to == kNoSegment) move.to = Append(to_chain, seed_length_);
    Lengthen(move.from, best_.added);
    Join(move.from, move.to, best_.side);
    Resize(move.from, state_.now[move.from] - problem_.room);
    Resize(move.to, state_.now[move.to] + problem_.room);
    return move;
  }

  const TrailProblem& problem_;
  const Weights& weights_;
  State& state_;
  Random& random_;
  const std::uint32_t seed_length_;  // of a new segment that is to grow
  Option best_;
};

// A closed walk over the chains that takes each seam that occurs once (Hierholzer 1873), begun with the first round's;
// empty where there is none. Where it can it goes on to the chain whose round most often comes next: a segment that
// gains the room and passes it on at once stays as odd or even as it was.
std::vector<std::uint32_t> ClosedWalk(const TrailProblem& problem) {
  const std::vector<std::uint32_t>& rounds = problem.chain_of_round;
  std::vector<std::vector<std::uint32_t>> next(problem.chains);
  std::map<std::array<std::uint32_t, 3>, std::uint32_t> triples;
  std::vector<int> balance(problem.chains, 0);
  std::size_t seams = 0;
  for (std::size_t round = 1; round < rounds.size(); ++round) {
    if (round > 1) ++triples[{rounds[round - 2], rounds[round - 1], rounds[round]}];
    std::vector<std::uint32_t>& ways = next[rounds[round - 1]];
    if (std::find(ways.begin(), ways.end(), rounds[round]) != ways.end()) continue;
    ways.push_back(rounds[round]);
    ++balance[rounds[round - 1]];
    --balance[rounds[round]];
    ++seams;
  }
  if (std::any_of(balance.begin(), balance.end(), [](int difference) { return difference != 0; })) return {};
  std::vector<std::uint32_t> stack = {rounds.front()};
  std::vector<std::uint32_t> walk;
  while (!stack.empty()) {
    const std::uint32_t at = stack.back();
    std::vector<std::uint32_t>& ways = next[at];
    if (ways.empty()) {
      walk.push_back(at);
      stack.pop_back();
      continue;
    }
    auto best = ways.begin();
    if (stack.size() > 1) {
      const auto count = [&](std::uint32_t to) { return triples[{stack[stack.size() - 2], at, to}]; };
      best = std::max_element(ways.begin(), ways.end(),
                              [&](std::uint32_t a, std::uint32_t b) { return count(a) < count(b); });
    }
    const std::uint32_t to = *best;
    ways.erase(best);
    stack.push_back(to);
  }
  if (walk.size() != seams + 1) return {};
  std::reverse(walk.begin(), walk.end());
  return walk;
}

// Begins with one trail that goes round the closed walk and beyond it, if there is one. Goes back to an earlier round
// where it fails, further back the longer that does not help.
class TrailSearch {
 public:
  TrailSearch(const TrailProblem& problem, const std::vector<std::uint32_t>& walk, Random& random)
      : problem_(problem), random_(random), state_(problem) {
    if (walk.empty()) return;
    // How many seams the drift carries past a trail's beginning, were all segments alike; how many serve best is luck.
    const std::size_t turns =
        problem.chain_of_round.size() * problem.room / (std::size_t{problem.chains} * problem.pass);
    const std::size_t beyond = random.Below(2 * turns + kMoreBeyond);
    Step(problem, weights_, state_, random).Plant(walk, walk.size() - 1 + beyond);
  }

  // Goes on with so much effort; whether all rounds are served.
  [[nodiscard]] bool Serve(std::uint64_t effort) {
    const std::size_t rounds = problem_.chain_of_round.size();
    while (moves_.size() < rounds) {
      if (effort-- == 0) return false;
      if (moves_.size() % kStride == 0) Remember();
      if (!ServeNext()) GoBack();
    }
    return true;
  }

  [[nodiscard]] Trails Take() { return {std::move(state_.segments), std::move(moves_)}; }

 private:
  // Rounds from one that is remembered to the next.
  static constexpr std::size_t kStride = 16;
  static constexpr std::size_t kMoreBeyond = 16;

  void Remember() {
    const std::size_t index = moves_.size() / kStride;
    if (index == remembered_.size()) remembered_.push_back(state_);
  }

  bool ServeNext() {
    const std::size_t round = moves_.size();
    const std::uint32_t from = round == 0 ? problem_.chains : problem_.chain_of_round[round - 1];
    Step step(problem_, weights_, state_, random_);
    const std::optional<SeamMove> move = step.Serve(from, problem_.chain_of_round[round]);
    if (move) moves_.push_back(*move);
    return move.has_value();
  }

  void GoBack() {
    const std::size_t index = moves_.size() / kStride;
    if (moves_.size() > furthest_) {
      furthest_ = moves_.size();
      vain_ = 0;
    }
    ++vain_;
    // Half of all attempts go back one step at most, a quarter two, and so on; the longer in vain, the further at most.
    std::size_t back = 1;
    while (back < vain_ && random_.Below(2) == 0) back *= 2;
    const std::size_t target = index - std::min<std::size_t>(index, random_.Below(back + 1));
    remembered_.resize(target + 1, State(problem_));
    state_ = remembered_[target];
    moves_.resize(target * kStride);
    weights_ = DrawWeights(random_);
  }

  const TrailProblem& problem_;
  Random& random_;
  State state_;
  Weights weights_;
  std::vector<SeamMove> moves_;
  std::vector<State> remembered_;
  std::size_t furthest_ = 0;
  std::size_t vain_ = 0;
};

constexpr std::uint64_t kRoundsBetweenChecks = 2000;
constexpr Work kWorkOfRound = 250;

}  // namespace

std::optional<Trails> FindTrails(const TrailProblem& problem, const TrailLimits& limits, std::uint64_t seed) {
  // Of a search that succeeds: a few times its rounds. Others go on for ever.
  const std::uint64_t at_once = 20'000 + 8 * problem.chain_of_round.size();
  const std::vector<std::uint32_t> walk = ClosedWalk(problem);
  Random random(seed);
  for (std::uint64_t spent = 0; spent < limits.effort; spent += at_once) {
    TrailSearch search(problem, walk, random);
    for (std::uint64_t served = 0; served < at_once; served += kRoundsBetweenChecks) {
      if (limits.budget != nullptr) {
        if (limits.budget->IsOver()) return std::nullopt;
        limits.budget->Charge(kWorkOfRound * kRoundsBetweenChecks);
      }
      if (search.Serve(std::min(kRoundsBetweenChecks, at_once - served))) return search.Take();
    }
  }
  return std::nullopt;
}

}  // namespace stalloc::planner
