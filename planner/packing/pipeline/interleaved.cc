#include "planner/packing/pipeline/interleaved.h"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "planner/packing/pipeline/pass_rounds.h"
#include "planner/packing/pipeline/room_trails.h"
#include "planner/packing/pipeline/trail_layout.h"
#include "planner/packing/search/core.h"
#include "planner/packing/search/fit_tree.h"
#include "planner/packing/search/size_first_fit.h"

namespace stalloc::planner {
namespace {

// Trails that are laid out before the search gives up: the tensors of some pass may not fill its segments.
constexpr std::uint64_t kAttempts = 4;
// Rooms that are tried, each two units larger than the one before.
constexpr int kMoreRooms = 4;
// Rounds served in search of one: a second's work.
constexpr std::uint64_t kEffort = 2'000'000;

// Iterations that are alike share their trails.
class IterationLayOut {
 public:
  IterationLayOut(const Instance& instance, SearchState& state, std::uint64_t seed)
      : instance_(instance), state_(state), seed_(seed) {}

  [[nodiscard]] std::optional<std::vector<PlacedBlock>> Place(const PassRounds& rounds) {
    const TrailProblem problem = TrailProblemOf(instance_, rounds);
    // Heeded though there may be no packing yet: the first fit by size makes one sooner than a search in vain.
    const TrailLimits limits{.effort = kEffort, .budget = &state_.budget()};
    for (std::uint64_t attempt = 0; attempt < kAttempts; ++attempt) {
      if (attempt > 0 || problem != problem_) {
        std::optional<Trails> found = FindTrails(problem, limits, seed_ + attempt);
        if (!found) return std::nullopt;
        trails_ = *std::move(found);
        problem_ = problem;
      }
      state_.budget().Charge(kWorkOfSort * instance_.size());
      std::optional<std::vector<PlacedBlock>> placed = LayOutPasses(instance_, rounds, trails_);
      if (placed) return placed;
    }
    return std::nullopt;
  }

 private:
  const Instance& instance_;
  SearchState& state_;
  const std::uint64_t seed_;
  TrailProblem problem_;  // whose trails these are
  Trails trails_;
};

bool IsLong(const Item& item) { return item.end_step - item.start_step >= kLeastPassSteps; }

// All blocks of an instance: some have their places, the others follow by size, first fit.
class Completion {
 public:
  explicit Completion(Evaluator& evaluator)
      : instance_(evaluator.instance()),
        state_(evaluator.state()),
        tree_(instance_.positions()),
        offsets_(instance_.size()),
        is_placed_(instance_.size()) {}

  void PlaceAt(BlockIndex block, Offset offset) {
    const Item& item = instance_[block];
    tree_.Insert(item, offset);
    offsets_[block] = offset;
    is_placed_[block] = true;
    height_ = std::max(height_, offset + item.bytes);
  }

  // Nothing where it has its place.
  void PlaceLowest(BlockIndex block) { PlaceLowest(block, 0); }

  [[nodiscard]] Bytes height() const { return height_; }

  // What lives for long and is alive within one of the spans above all that has its place: below, it would lie where
  // temporaries need to. To be called before the rest is placed.
  void PlaceLongAbove(std::span<const BlockIndex> order, std::span<const Span> spans) {
    const Offset top = height_;
    for (const BlockIndex block : order) {
      const Item& item = instance_[block];
      if (IsLong(item) &&
          std::any_of(spans.begin(), spans.end(), [&](const Span& s) { return s.Intersects(item.span); })) {
        PlaceLowest(block, top);
      }
    }
  }

  // Light blocks that live for long above all that has its place, for at the peaks there is no room below. False when
  // it can no longer lower the height, or the budget is spent.
  bool PlaceRest(std::span<const BlockIndex> order) {
    constexpr std::size_t kBlocksBetweenChecks = 1024;
    const Offset top = height_;
    const Bytes light = LightBytes(instance_);
    for (std::size_t i = 0; i < order.size(); ++i) {
      if (i % kBlocksBetweenChecks == 0) ChargeForTree();
      if (height_ >= state_.height() || state_.IsOver()) return false;
      PlaceLowest(order[i], instance_[order[i]].bytes < light && IsLong(instance_[order[i]]) ? top : 0);
    }
    return true;
  }

  void Offer() {
    ChargeForTree();
    state_.Offer(offsets_, height_, OrderByOffset(instance_, offsets_));
  }

 private:
  void ChargeForTree() { state_.budget().Charge(tree_.work() - std::exchange(charged_, tree_.work())); }
  void PlaceLowest(BlockIndex block, Offset base) {
    if (!is_placed_[block]) PlaceAt(block, tree_.LowestFit(instance_[block], base));
  }

  const Instance& instance_;
  SearchState& state_;
  FitTree tree_;
  std::vector<Offset> offsets_;
  std::vector<bool> is_placed_;
  Bytes height_ = 0;
  Work charged_ = 0;
};

// By size, what lives for long first: it must not lie where temporaries need to.
std::vector<BlockIndex> OrderOfRest(const Instance& instance) {
  std::vector<BlockIndex> order = SizeOrder(instance);
  const Bytes light = LightBytes(instance);
  std::stable_partition(order.begin(), order.end(), [&](BlockIndex block) {
    const Item& item = instance[block];
    return item.bytes >= light && IsLong(item);
  });
  return order;
}

// From the first peak's last pass to the last one that is freed at a peak, in positions of the whole.
Span PeaksOf(const Instance& whole, const Core& core, const PassRounds& rounds) {
  const auto item = [&](BlockIndex block) -> const Item& { return whole[core.blocks()[block]]; };
  Span span{whole.positions(), 0};
  for (const BlockIndex block : rounds.passes[rounds.in_flight - 1].body) {
    span.begin = std::min(span.begin, item(block).span.begin);
  }
  for (const BlockIndex block : rounds.passes[rounds.freed[rounds.rounds - 1]].body) {
    span.end = std::max(span.end, item(block).span.end);
  }
  return span;
}

// Lays out the passes, then the rest; nothing where the passes cannot be laid out.
void TryIterations(Evaluator& evaluator, const Core& core, const std::vector<PassRounds>& iterations,
                   std::uint64_t seed) {
  const Instance& instance = core.instance();
  Completion completion(evaluator);
  IterationLayOut lay_out(instance, evaluator.state(), seed);
  for (BlockIndex block = 0; block < instance.size(); ++block) {
    if (IsOutsidePasses(instance, instance[block])) {
      completion.PlaceLowest(core.blocks()[block]);
    }
  }
  const Bytes residents = completion.height();
  std::vector<Span> peaks;  // where two temporaries at once leave nothing free
  for (const PassRounds& rounds : iterations) {
    if (!rounds.interleaved() || evaluator.state().Done()) return;
    const std::optional<std::vector<PlacedBlock>> placed = lay_out.Place(rounds);
    if (!placed) return;
    const Offset bottom = RoundUp(residents, rounds.alignment);
    for (const auto& [block, offset] : *placed) completion.PlaceAt(core.blocks()[block], bottom + offset);
    if (rounds.late_bytes > 0) peaks.push_back(PeaksOf(evaluator.instance(), core, rounds));
  }
  const std::vector<BlockIndex> order = OrderOfRest(evaluator.instance());
  if (!peaks.empty()) completion.PlaceLongAbove(order, peaks);
  if (completion.PlaceRest(order)) completion.Offer();
}

}  // namespace

void SearchInterleaved(Evaluator& evaluator, std::uint64_t seed) {
  const Core core(evaluator.instance(), 0.5, LightBytes(evaluator.instance()));
  evaluator.state().budget().Charge(2 * kWorkOfSort * evaluator.instance().size());
  std::vector<PassRounds> iterations = FindPassRounds(core.instance(), kLeastPassSteps);
  if (iterations.empty()) return;
  const auto has_two_pieces = [](const PassRounds& rounds) { return rounds.late_bytes > 0; };
  const bool two_pieces = std::all_of(iterations.begin(), iterations.end(), has_two_pieces);
  TryIterations(evaluator, core, iterations, seed);
  if (!two_pieces) return;
  // Two pieces leave the smaller temporaries little choice: larger rooms may end lower.
  for (int more = 0; more < kMoreRooms && !evaluator.state().Done(); ++more) {
    for (PassRounds& rounds : iterations) rounds.room_bytes += 2 * rounds.unit;
    TryIterations(evaluator, core, iterations, seed);
  }
}

}  // namespace stalloc::planner
