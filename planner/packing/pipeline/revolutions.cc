#include "planner/packing/pipeline/revolutions.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/container/node_hash_map.h"
#include "planner/packing/pipeline/revolution_placer.h"
#include "planner/packing/pipeline/ring_blocks.h"
#include "planner/packing/pipeline/ring_window.h"
#include "planner/packing/search/core.h"
#include "planner/packing/search/fit_tree.h"
#include "planner/packing/search/size_first_fit.h"

namespace stalloc::planner {
namespace {

constexpr std::size_t kMostShifts = 16;
constexpr std::uint32_t kMostEarly = 8;
constexpr Work kWorkOfRingBlock = 120;

// Room that short-lived blocks can fill alone or with what has just been freed: sums of up to two sizes, the smallest
// first.
std::vector<Bytes> Shifts(const Instance& instance) {
  constexpr Bytes kLeastShare = 4096;
  absl::flat_hash_set<Bytes> distinct = {0};
  for (const Item& item : instance.items()) {
    if (item.bytes >= instance.load_bound() / kLeastShare) distinct.insert(item.bytes);
  }
  std::vector<Bytes> sizes(distinct.begin(), distinct.end());
  const auto tidy = [](std::vector<Bytes>& values) {
    std::sort(values.begin(), values.end());
    values.erase(std::unique(values.begin(), values.end()), values.end());
    if (values.size() > kMostShifts) values.resize(kMostShifts);
  };
  tidy(sizes);
  std::vector<Bytes> sums;
  for (const Bytes a : sizes) {
    for (const Bytes b : sizes) sums.push_back(a + b);
  }
  tidy(sums);
  return sums;
}

std::vector<RingClosure> Closures(const std::vector<Bytes>& shifts) {
  std::vector<RingClosure> closures;
  for (std::uint32_t early = 0; early < kMostEarly; ++early) {
    for (const Bytes shift : shifts) {
      for (const bool fill : {true, false}) closures.push_back({.shift = shift, .early = early, .fill = fill});
    }
  }
  return closures;
}

// Closures of a first revolution: it may begin anywhere, and what follows fills the room below it.
std::vector<RingClosure> Starts(Bytes room) {
  constexpr Bytes kStarts = 12;
  std::vector<RingClosure> starts;
  for (Bytes i = 1; i < kStarts; ++i) starts.push_back({.shift = room / kStarts * i, .early = 0, .fill = true});
  return starts;
}

class RevolutionSearch {
 public:
  RevolutionSearch(const Instance& instance, SearchState& state, const RevolutionLimits& limits)
      : instance_(instance),
        state_(state),
        limits_(limits),
        blocks_(instance, limits.least_steps),
        area_rank_(instance.size()),
        offsets_(instance.size(), Revolution::kNotYet),
        bottom_(PlaceResidents()),
        closures_(Closures(Shifts(instance))),
        anywhere_(closures_.size()),
        placer_(bottom_, limits.ceiling) {
    for (std::uint32_t rank = 0; rank < blocks_.shorts.size(); ++rank) area_rank_[blocks_.shorts[rank]] = rank;
    std::stable_sort(blocks_.shorts.begin(), blocks_.shorts.end(),
                     [&](BlockIndex a, BlockIndex b) { return instance[a].span.end < instance[b].span.end; });
    later_.assign(blocks_.longs.size() + 1, instance.positions());
    for (std::size_t i = blocks_.longs.size(); i-- > 0;) {
      later_[i] = std::min(later_[i + 1], instance[blocks_.longs[i]].span.begin);
    }
  }

  bool Run() {
    if (!IsApplicable()) return false;
    const std::vector<RingClosure> starts = Starts(limits_.ceiling - bottom_);
    closures_.insert(closures_.end(), starts.begin(), starts.end());
    levels_.push_back(MakeLevel(0, 0, 0, {}));
    while (!IsFinished(levels_.back())) {
      const std::uint64_t looked = work_ + placer_.work();
      state_.budget().Charge(kWorkOfRingBlock * (looked - std::exchange(charged_, looked)));
      if (looked > work_limit_ || state_.IsOver()) return false;
      if (GoOn()) continue;
      dead_.insert({levels_.back().node, levels_.back().base});
      levels_.pop_back();
      if (levels_.empty()) return false;
      Undo(levels_.back());
    }
    return true;
  }

  [[nodiscard]] std::vector<Offset> Take() { return std::move(offsets_); }

 private:
  // What is known of a window, whenever it comes.
  struct Knowledge {
    struct Outcome {
      bool is_known = false;
      std::optional<Revolution> revolution;  // none: it fails, or is that of an earlier closure
    };
    std::vector<Outcome> outcomes;  // by closure
    std::size_t last_taken = 0;     // the closure with which the search went on last
  };
  using Windows = absl::node_hash_map<RingWindow, Knowledge>;
  using Node = Windows::value_type;

  // A revolution at its time. Blocks are parallel to the window's.
  struct Level {
    Node* node = nullptr;
    std::uint32_t base = 0;      // the window's beginning
    std::uint32_t finished = 0;  // all that is alive before has a place
    std::size_t next_long = 0;   // before it all long blocks have a place
    std::size_t next_short = 0;
    std::vector<BlockIndex> frozen = {};
    std::vector<BlockIndex> longs = {};
    std::vector<BlockIndex> shorts = {};
    std::size_t first_closure = 0;  // is tried before the others
    std::size_t tried = 0;
    const Revolution* taken = nullptr;
  };

  // Returns where the ring may begin.
  Bytes PlaceResidents() {
    Bytes height = 0;
    if (blocks_.residents.empty()) return height;
    FitTree tree(instance_.positions());
    for (const BlockIndex block : blocks_.residents) {
      const Item& item = instance_[block];
      const Offset offset = tree.LowestFit(item, 0);
      tree.Insert(item, offset);
      offsets_[block] = offset;
      height = std::max(height, offset + item.bytes);
    }
    return height;
  }

  // A ring that does not come round is none.
  [[nodiscard]] bool IsApplicable() const {
    if (bottom_ >= limits_.ceiling) return false;
    const auto has_one_life = [this](BlockIndex block) { return instance_[block].second.empty(); };
    if (!std::all_of(blocks_.shorts.begin(), blocks_.shorts.end(), has_one_life)) return false;
    Bytes bytes = 0;
    for (const BlockIndex block : blocks_.longs) bytes += instance_[block].bytes;
    return bytes > limits_.ceiling - bottom_;
  }

  [[nodiscard]] bool IsFinished(const Level& level) const {
    return level.next_long == blocks_.longs.size() && level.next_short == blocks_.shorts.size();
  }

  // Tries closures until one leads to a new level; false when none is left.
  bool GoOn() {
    while (levels_.back().tried < ChoicesOf(levels_.back())) {
      Level& level = levels_.back();
      const std::size_t closure = ClosureOf(level, level.tried++);
      level.taken = OutcomeOf(*level.node, closure);
      if (level.taken == nullptr) continue;
      Level next = Apply(level);
      if (dead_.contains({next.node, next.base})) {
        Undo(level);
        continue;
      }
      level.node->second.last_taken = last_taken_ = closure;
      if (next.finished > furthest_) {
        furthest_ = next.finished;
        work_limit_ = work_ + placer_.work() + limits_.patience;
      }
      levels_.push_back(std::move(next));
      return true;
    }
    return false;
  }

  [[nodiscard]] std::size_t ChoicesOf(const Level& level) const {
    return level.frozen.empty() ? closures_.size() : anywhere_;
  }

  static std::size_t ClosureOf(const Level& level, std::size_t turn) {
    if (turn == 0) return level.first_closure;
    return turn <= level.first_closure ? turn - 1 : turn;
  }

  const Revolution* OutcomeOf(Node& node, std::size_t closure) {
    auto& [window, knowledge] = node;
    Knowledge::Outcome& outcome = knowledge.outcomes[closure];
    if (!outcome.is_known) {
      outcome.is_known = true;
      std::optional<Revolution> revolution = placer_.Place(window, closures_[closure]);
      const auto is_same = [&](const Knowledge::Outcome& other) { return other.revolution == revolution; };
      if (revolution && std::none_of(knowledge.outcomes.begin(), knowledge.outcomes.end(), is_same)) {
        outcome.revolution = std::move(revolution);
      }
    }
    return outcome.revolution ? &*outcome.revolution : nullptr;
  }

  // Gives the level's blocks their places; returns the level after it.
  Level Apply(const Level& level) {
    const Revolution& revolution = *level.taken;
    for (std::size_t i = 0; i < level.longs.size(); ++i) offsets_[level.longs[i]] = revolution.longs[i];
    for (std::size_t i = 0; i < level.shorts.size(); ++i) offsets_[level.shorts[i]] = revolution.shorts[i];
    const std::uint32_t finished =
        revolution.finished == RingWindow::kNoPosition ? instance_.positions() : level.base + revolution.finished;
    std::size_t next_long = level.next_long;
    while (next_long < blocks_.longs.size() && HasPlace(blocks_.longs[next_long])) ++next_long;
    std::size_t next_short = level.next_short;
    while (next_short < blocks_.shorts.size() && HasPlace(blocks_.shorts[next_short])) ++next_short;
    std::vector<BlockIndex> placed = level.frozen;
    for (const std::vector<BlockIndex>* blocks : {&level.longs, &level.shorts}) {
      std::copy_if(blocks->begin(), blocks->end(), std::back_inserter(placed),
                   [this](BlockIndex block) { return HasPlace(block); });
    }
    return MakeLevel(finished, next_long, next_short, std::move(placed));
  }

  void Undo(const Level& level) {
    for (const BlockIndex block : level.longs) offsets_[block] = Revolution::kNotYet;
    for (const BlockIndex block : level.shorts) offsets_[block] = Revolution::kNotYet;
  }

  [[nodiscard]] bool HasPlace(BlockIndex block) const { return offsets_[block] != Revolution::kNotYet; }

  Level MakeLevel(std::uint32_t finished, std::size_t next_long, std::size_t next_short,
                  std::vector<BlockIndex> placed) {
    Level level{.base = finished, .finished = finished, .next_long = next_long, .next_short = next_short};
    const std::uint32_t later = ChooseLongs(level);
    ChooseShorts(level, later);
    std::erase_if(placed, [&](BlockIndex block) { return instance_[block].span.end <= level.base; });
    level.frozen = std::move(placed);
    work_ += level.frozen.size() + level.longs.size() + level.shorts.size();
    level.node = &*windows_.try_emplace(WindowOf(level, later)).first;
    Knowledge& knowledge = level.node->second;
    if (knowledge.outcomes.empty()) {
      knowledge.outcomes.resize(closures_.size());
      knowledge.last_taken = last_taken_;
    }
    if (knowledge.last_taken < ChoicesOf(level)) level.first_closure = knowledge.last_taken;
    return level;
  }

  // Long blocks for more than one revolution; returns where the first of the others begins.
  std::uint32_t ChooseLongs(Level& level) const {
    const Bytes room = limits_.ceiling - bottom_;
    Bytes bytes = 0;
    std::size_t next = level.next_long;
    for (std::size_t beyond = 0; next < blocks_.longs.size() && beyond < RingWindow::kLookAhead; ++next) {
      const BlockIndex block = blocks_.longs[next];
      if (HasPlace(block)) continue;
      if (bytes > room) ++beyond;
      bytes += instance_[block].bytes;
      level.longs.push_back(block);
    }
    return later_[next];
  }

  // Short blocks that end before `later`, by area; those that began before what is finished move the window's base.
  void ChooseShorts(Level& level, std::uint32_t later) const {
    for (std::size_t i = level.next_short; i < blocks_.shorts.size(); ++i) {
      const Item& item = instance_[blocks_.shorts[i]];
      if (item.span.end > later) break;
      level.shorts.push_back(blocks_.shorts[i]);
      level.base = std::min(level.base, item.span.begin);
    }
    std::sort(level.shorts.begin(), level.shorts.end(),
              [this](BlockIndex a, BlockIndex b) { return area_rank_[a] < area_rank_[b]; });
  }

  [[nodiscard]] RingWindow WindowOf(const Level& level, std::uint32_t later) const {
    const auto span_of = [&](BlockIndex block) {
      const Span& span = instance_[block].span;
      return Span{std::max(span.begin, level.base) - level.base, span.end - level.base};
    };
    RingWindow window;
    for (const BlockIndex block : level.frozen) {
      window.obstacles.push_back({span_of(block), offsets_[block], offsets_[block] + instance_[block].bytes});
    }
    const auto add = [&](const std::vector<BlockIndex>& blocks, std::vector<RingWindow::Piece>& pieces) {
      for (const BlockIndex block : blocks) {
        pieces.push_back({instance_[block].bytes, instance_[block].alignment, span_of(block)});
      }
    };
    add(level.longs, window.longs);
    add(level.shorts, window.shorts);
    if (later < instance_.positions()) window.later = later - level.base;
    return window;
  }

  const Instance& instance_;
  SearchState& state_;
  const RevolutionLimits limits_;
  RingBlocks blocks_;                     // the short ones by end
  std::vector<std::uint32_t> area_rank_;  // of short blocks, the greatest area first
  std::vector<std::uint32_t> later_;      // where the first long block from this one on begins
  std::vector<Offset> offsets_;
  const Offset bottom_;  // of the ring
  std::vector<RingClosure> closures_;
  const std::size_t anywhere_;  // from this one on they are for a ring that begins
  RevolutionPlacer placer_;
  Windows windows_;
  std::vector<Level> levels_;
  // From here on the search failed.
  absl::flat_hash_set<std::pair<const Node*, std::uint32_t>> dead_;
  std::size_t last_taken_ = 0;
  std::uint32_t furthest_ = 0;  // position
  std::uint64_t work_ = 0;      // beside the placer's
  std::uint64_t charged_ = 0;
  std::uint64_t work_limit_ = limits_.patience;
};

}  // namespace

std::optional<std::vector<Offset>> PackRevolutions(const Instance& instance, SearchState& state,
                                                   const RevolutionLimits& limits) {
  RevolutionSearch search(instance, state, limits);
  if (!search.Run()) return std::nullopt;
  return search.Take();
}

void SearchRings(Evaluator& evaluator) {
  // Blocks looked at since the search last got further; one revolution takes about a thousand.
  constexpr std::uint64_t kPatience = 1'000'000;
  SearchState& state = evaluator.state();
  const Core core(evaluator.instance(), 0.5, LightBytes(evaluator.instance()));
  state.budget().Charge(kWorkOfSort * evaluator.instance().size());
  const std::optional<std::vector<Offset>> offsets =
      PackRevolutions(core.instance(), state,
                      {.ceiling = core.instance().load_bound(), .least_steps = kLeastRingSteps, .patience = kPatience});
  if (offsets) evaluator.FirstFit(core.Completed(OrderByOffset(core.instance(), *offsets)));
}

}  // namespace stalloc::planner
