#include "planner/packing/search/lower_bound.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "planner/packing/search/capacity_race.h"
#include "planner/packing/search/window_sample.h"

namespace stalloc::planner {
namespace {

constexpr std::size_t kStretches = 24;
constexpr int kMaxSteps = 40;  // of the capacity

bool Covers(const Span& span, const Span& window) { return span.begin <= window.begin && window.end <= span.end; }

// Some of the blocks: the height of all is at least `below` and the height of `rest`.
struct Relaxation {
  Problem rest;
  Bytes below = 0;
};

class Relaxer {
 public:
  Relaxer(const Instance& whole, const Span& window) : whole_(whole) {
    for (BlockIndex i = 0; i < whole.size(); ++i) {
      const Item& item = whole[i];
      if (!window.Intersects(item.span) && !window.Intersects(item.second)) continue;
      const bool through = Covers(item.span, window) || Covers(item.second, window);
      (through ? through_ : inside_).push_back(i);
      AddAlignment(item.alignment);
    }
  }

  [[nodiscard]] Relaxation Heaviest(std::size_t max_blocks) {
    Relaxation relaxation;
    for (const BlockIndex block : through_) {
      if (MayBeSlidOver(whole_[block].bytes)) {
        relaxation.below += whole_[block].bytes;
      } else {
        inside_.push_back(block);
      }
    }
    std::sort(inside_.begin(), inside_.end(), [&](BlockIndex a, BlockIndex b) {
      return whole_[a].bytes != whole_[b].bytes ? whole_[a].bytes > whole_[b].bytes : a < b;
    });
    if (inside_.size() > max_blocks) inside_.resize(max_blocks);
    for (const BlockIndex block : inside_) relaxation.rest.blocks.push_back(whole_.problem().blocks[block]);
    return relaxation;
  }

 private:
  void AddAlignment(Bytes alignment) {
    const auto at = std::lower_bound(alignments_.begin(), alignments_.end(), alignment);
    if (at == alignments_.end() || *at != alignment) alignments_.insert(at, alignment);
  }

  [[nodiscard]] bool MayBeSlidOver(Bytes bytes) const {
    return std::all_of(alignments_.begin(), alignments_.end(), [&](Bytes alignment) { return bytes % alignment == 0; });
  }

  const Instance& whole_;
  std::vector<BlockIndex> through_;  // alive all through the window, so in conflict with whatever is alive in it
  std::vector<BlockIndex> inside_;
  std::vector<Bytes> alignments_;  // distinct, of all of them
};

// The least height that is not ruled out for all blocks of `instance`, or `known` where nothing more can be said. Of
// `reached` it is known that they fit. In units of height.
class CapacitySteps {
 public:
  CapacitySteps(const Instance& instance, std::uint64_t nodes, SearchState& state)
      : instance_(instance), unit_(HeightUnit(instance.problem())), nodes_(nodes), state_(state) {}

  [[nodiscard]] Bytes LeastPossible(Bytes known, Bytes reached) {
    Bytes low = known / unit_;
    if (!IsImpossible(low)) return known;
    Bytes high = reached / unit_;
    bool is_bracketed = false;
    Bytes step = 1;
    for (int steps = 0; low + 1 < high && steps < kMaxSteps; ++steps) {
      const Bytes at = low + std::clamp<Bytes>(is_bracketed ? (high - low) / 2 : step, 1, high - low - 1);
      if (IsImpossible(at)) {
        low = at;
        step *= 2;
      } else {
        high = at;
        is_bracketed = true;
      }
    }
    return (low + 1) * unit_;
  }

 private:
  [[nodiscard]] bool IsImpossible(Bytes units) {
    const FitOutcome fit =
        FitBelow(instance_, units * unit_,
                 {.nodes = nodes_, .work = state_.WorkLeft(), .should_stop = [this] { return state_.IsOver(); }});
    state_.budget().Charge(fit.work);
    return fit.outcome == CapacitySearch::Outcome::kInfeasible;
  }

  const Instance& instance_;
  const Bytes unit_;
  const std::uint64_t nodes_;
  SearchState& state_;
};

void ProveWindow(const Instance& instance, std::uint32_t peak, const RelaxationWindow& window, std::uint64_t nodes,
                 SearchState& state) {
  state.budget().Charge(kWorkOfLook * instance.size());
  const Span around = WindowAround(peak, window.beginnings, instance);
  const Relaxation relaxation = Relaxer(instance, around).Heaviest(window.blocks);
  if (relaxation.rest.blocks.empty()) return;
  const Instance rest(relaxation.rest);
  CapacitySteps steps(rest, nodes, state);
  const Bytes below = relaxation.below;
  state.ProveBound(below + steps.LeastPossible(state.proved_bound() - below, state.height() - below));
}

}  // namespace

// Rounding a multiple of the unit up to an alignment gives a multiple of the unit again if one divides the other.
Bytes HeightUnit(const Problem& problem) {
  Bytes unit = 0;
  for (const Block& block : problem.blocks) unit = std::gcd(unit, block.bytes);
  for (Bytes before = 0; unit != before;) {
    before = unit;
    for (const Block& block : problem.blocks) {
      if (unit % block.alignment != 0) unit = std::gcd(unit, block.alignment);
    }
  }
  return unit;
}

void ProveByRelaxation(const Instance& instance, SearchState& state, const RelaxationLimits& limits) {
  std::vector<std::uint32_t> peaks = LoadPeaks(instance, kStretches);
  if (peaks.size() > limits.peaks) peaks.resize(limits.peaks);
  for (const std::uint32_t peak : peaks) {
    for (const RelaxationWindow& window : limits.windows) {
      if (state.Done()) return;
      ProveWindow(instance, peak, window, limits.nodes, state);
    }
  }
}

}  // namespace stalloc::planner
