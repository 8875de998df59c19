#include "planner/packing/ring.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <thread>
#include <utility>

#include "planner/packing/compaction.h"
#include "planner/packing/core.h"
#include "planner/packing/fit_tree.h"
#include "planner/packing/revolutions.h"
#include "planner/packing/ring_blocks.h"
#include "planner/packing/search_solver.h"
#include "planner/packing/size_first_fit.h"
#include "planner/packing/window_repair.h"

namespace stalloc::planner {
namespace {

class RingPlacer {
 public:
  RingPlacer(const Instance& instance, const RingOptions& options)
      : instance_(instance), options_(options), ceiling_(options.ceiling), tree_(instance.positions()) {
    packing_.offsets.resize(instance.size());
    if (!PlaceAll(RingBlocks(instance, options.least_steps), options.start)) packing_.offsets.clear();
    packing_.work = kWorkOfSort * instance.size() + tree_.work();
  }

  [[nodiscard]] RingPacking Take() { return std::move(packing_); }

 private:
  [[nodiscard]] bool IsGivenUp() const {
    return packing_.misses > options_.most_misses || tree_.work() > options_.most_work;
  }

  // False where it is given up.
  bool PlaceAll(const RingBlocks& blocks, double start) {
    for (const BlockIndex block : blocks.residents) PlaceLowest(block);
    bottom_ = packing_.height;
    const Bytes room = ceiling_ > bottom_ ? ceiling_ - bottom_ : 0;
    next_ = bottom_ + static_cast<Bytes>(start * static_cast<double>(room));
    gap_ = ceiling_;
    for (const BlockIndex block : blocks.longs) {
      PlaceInRing(block);
      if (IsGivenUp()) return false;
    }
    for (const BlockIndex block : blocks.shorts) {
      PlaceLowest(block);
      if (IsGivenUp()) return false;
    }
    return true;
  }

  void PlaceAt(BlockIndex block, Offset offset) {
    const Item& item = instance_[block];
    const Offset end = offset + item.bytes;
    tree_.Insert(item.span, offset, end);
    if (!item.second.empty()) tree_.Insert(item.second, offset, end);
    packing_.offsets[block] = offset;
    packing_.height = std::max(packing_.height, end);
    if (end > ceiling_) ++packing_.misses;
  }

  void PlaceLowest(BlockIndex block) { PlaceAt(block, tree_.LowestFit(instance_[block], 0)); }

  void PlaceInRing(BlockIndex block) {
    const Item& item = instance_[block];
    // What was too large for the rest below the ceiling has gone on at the bottom; smaller ones still fill the rest.
    if (gap_ < ceiling_) {
      const Offset offset = tree_.LowestFit(item, gap_);
      if (offset + item.bytes <= ceiling_) {
        gap_ = offset + item.bytes;
        return PlaceAt(block, offset);
      }
    }
    Offset offset = tree_.LowestFit(item, next_);
    if (offset + item.bytes > ceiling_) {
      gap_ = next_;
      offset = tree_.LowestFit(item, bottom_);
    }
    PlaceAt(block, offset);
    if (offset + item.bytes <= ceiling_) next_ = offset + item.bytes;
  }

  const Instance& instance_;
  const RingOptions& options_;
  const Bytes ceiling_;
  FitTree tree_;
  RingPacking packing_;
  Offset bottom_ = 0;  // of the ring
  Offset next_ = 0;    // where it goes on
  Offset gap_ = 0;     // where the rest below the ceiling begins
};

// Rings that are tried, each with another start.
constexpr std::size_t kRings = 12;
// A ring costs as much as an order of all blocks; of many blocks only some are tried.
constexpr std::size_t kManyBlocks = 100000;
constexpr std::size_t kFewRings = 4;
constexpr std::size_t kRingBatch = 4;  // of any number of threads, so that the outcome does not depend on it
// So many blocks above the ceiling are worth a repair.
constexpr std::size_t kMostMisses = 16;
// Blocks looked at by the search of revolutions since it last got further; one revolution takes about a thousand.
constexpr std::uint64_t kRingPatience = 1'000'000;
constexpr RepairLimits kMending = {.windows = 400, .patience = 100};

RingOptions OptionsOf(std::size_t index, Bytes ceiling, Work most_work) {
  return {.ceiling = ceiling,
          .least_steps = kLeastRingSteps,
          // Five is prime to twelve: the first few are spread over all.
          .start = static_cast<double>(index * 5 % kRings) / kRings,
          .most_misses = kMostMisses,
          .most_work = most_work};
}

// Rings `first` and so on, each with its share of what is left.
void PlaceBatch(const Instance& instance, Bytes ceiling, std::size_t first, int threads, SearchState& state,
                std::vector<RingPacking>& rings) {
  const Work share = state.WorkLeft() / kRingBatch;
  const std::size_t end = std::min(first + kRingBatch, rings.size());
  std::atomic<std::size_t> next{first};
  const auto work = [&] {
    for (std::size_t i = next++; i < end; i = next++) rings[i] = PlaceRing(instance, OptionsOf(i, ceiling, share));
  };
  {
    std::vector<std::jthread> pool;
    for (int thread = 1; thread < threads; ++thread) pool.emplace_back(work);
    work();
  }
  for (std::size_t i = first; i < end; ++i) state.budget().Charge(rings[i].work);
}

std::vector<RingPacking> PlaceRings(const Instance& instance, Bytes ceiling, std::size_t count, int threads,
                                    SearchState& state) {
  std::vector<RingPacking> rings(count);
  for (std::size_t first = 0; first < count && !state.IsOver(); first += kRingBatch) {
    PlaceBatch(instance, ceiling, first, threads, state, rings);
  }
  std::erase_if(rings, [](const RingPacking& ring) { return ring.offsets.empty(); });
  return rings;
}

}  // namespace

RingPacking PlaceRing(const Instance& instance, const RingOptions& options) {
  return RingPlacer(instance, options).Take();
}

namespace {

// Whether the packing of the core, completed, lowers the height.
bool Lowers(Evaluator& evaluator, const Core& core, const std::vector<Offset>& offsets) {
  const Bytes before = evaluator.state().height();
  evaluator.FirstFit(core.Completed(OrderByOffset(core.instance(), offsets)));
  return evaluator.state().height() < before;
}

// Rings that each close at one place for good; where few blocks miss the ceiling, windows are repaired.
void SearchStarts(Evaluator& evaluator, const Core& core, std::uint64_t seed) {
  SearchState& state = evaluator.state();
  const Instance& instance = core.instance();
  const Bytes ceiling = instance.load_bound();
  const std::size_t count = instance.size() > kManyBlocks ? kFewRings : kRings;
  std::vector<RingPacking> rings = PlaceRings(instance, ceiling, count, evaluator.threads(), state);
  std::stable_sort(rings.begin(), rings.end(), [](const RingPacking& a, const RingPacking& b) {
    return a.misses != b.misses ? a.misses < b.misses : a.height < b.height;
  });
  for (RingPacking& ring : rings) {
    if (state.Done()) return;
    std::vector<Offset> offsets = std::move(ring.offsets);
    if (ring.misses > 0) {
      std::optional<std::vector<Offset>> mended =
          RepairBelow(instance, state, std::move(offsets), ceiling, kMending, seed, evaluator.threads());
      if (!mended) continue;
      offsets = *std::move(mended);
    }
    if (Lowers(evaluator, core, offsets)) return;
  }
}

}  // namespace

void SearchRings(Evaluator& evaluator, std::uint64_t seed) {
  SearchState& state = evaluator.state();
  const Core core(evaluator.instance(), 0.5, LightBytes(evaluator.instance()));
  state.budget().Charge(kWorkOfSort * evaluator.instance().size());
  const RevolutionLimits limits{
      .ceiling = core.instance().load_bound(), .least_steps = kLeastRingSteps, .patience = kRingPatience};
  const std::optional<std::vector<Offset>> offsets = PackRevolutions(core.instance(), state, limits);
  if (offsets && Lowers(evaluator, core, *offsets)) return;
  if (!state.Done()) SearchStarts(evaluator, core, seed);
}

std::unique_ptr<Solver> MakeRing() {
  return MakeSearchSolver("ring", [](Evaluator& evaluator, const SolveOptions& options) {
    SolveBySize(evaluator);
    if (!evaluator.state().Done()) SearchRings(evaluator, options.seed);
  });
}

}  // namespace stalloc::planner
