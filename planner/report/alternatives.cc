#include "planner/report/alternatives.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "planner/analysis/sweep.h"
#include "planner/report/block_tables.h"
#include "planner/report/largest_keys.h"
#include "planner/report/recomputation.h"

namespace stalloc::planner {
namespace {

constexpr std::size_t kLayers = 8;
constexpr std::size_t kPatterns = 16;
constexpr std::size_t kPeakGroups = 100000;
constexpr double kLossParts = 4;

Alternative Make(AlternativeKind kind, double keep = 0) {
  Alternative alternative;
  alternative.kind = kind;
  alternative.keep = keep;
  return alternative;
}

// Whether the block is there less, or not at all, for all its life; of other kinds blocks live for less long. What
// varies counts as what its lifetime says.
bool Belongs(const DeviceFacts& facts, const Alternative& alternative, Bytes bytes, const BlockFact& fact) {
  const MemoryClass kind = fact.by_lifetime;
  switch (alternative.kind) {
    case AlternativeKind::kShardAll:
      if (kind == MemoryClass::kWeights) return true;
      [[fallthrough]];
    case AlternativeKind::kShardGradients:
      if (kind == MemoryClass::kGradients) return true;
      [[fallthrough]];
    case AlternativeKind::kOffloadState:
    case AlternativeKind::kShardState:
      return kind == MemoryClass::kOptimizerState;
    case AlternativeKind::kNoOptimizerScratch:
      return kind == MemoryClass::kTemporaries && facts.InOptimizer(fact);
    case AlternativeKind::kChunkLoss:
      return alternative.turn.sizes.contains({fact.phase, bytes});
    case AlternativeKind::kRecomputeLayer:
    case AlternativeKind::kOffloadLayer:
    case AlternativeKind::kFreeLate:
      return false;
  }
  return false;
}

void AddShards(std::uint32_t ranks, std::vector<Alternative>* found) {
  if (ranks < 2) return;
  for (const AlternativeKind kind :
       {AlternativeKind::kShardState, AlternativeKind::kShardGradients, AlternativeKind::kShardAll}) {
    found->push_back(Make(kind, 1.0 / ranks));
  }
}

// To be played by Player.
std::vector<Alternative> Candidates(const DeviceFacts& facts, std::uint32_t ranks) {
  std::vector<Alternative> found{Make(AlternativeKind::kOffloadState), Make(AlternativeKind::kNoOptimizerScratch)};
  AddShards(ranks, &found);
  found.push_back(Make(AlternativeKind::kChunkLoss, 1 / kLossParts));
  found.back().turn = FindTurnBlocks(facts);
  for (const LateKind late :
       {LateKind::kAfterBackward, LateKind::kAfterLayer, LateKind::kAfterOptimizer, LateKind::kAfterIteration}) {
    found.push_back(Make(AlternativeKind::kFreeLate));
    found.back().late = late;
  }
  return found;
}
static_assert(6 + kLateKinds <= 64, "an alternative is a bit");

void AddRecomputations(const DeviceFacts& facts, std::uint64_t peak_event, std::vector<Alternative>* found) {
  for (Recomputation& each : FindRecomputations(facts, peak_event, kPatterns, kLayers)) {
    Alternative alternative = Make(AlternativeKind::kRecomputeLayer);
    alternative.at_least = each.at_least;
    alternative.leaves = each.leaves;
    alternative.at_peak = each.at_peak;
    alternative.moved = each.moved;
    alternative.peak = each.peak;
    alternative.layers = each.layers;
    found->push_back(alternative);
    alternative.kind = AlternativeKind::kOffloadLayer;
    alternative.at_least = true;  // what is moved comes back when it is needed, and not all of a layer at once
    alternative.peak = each.offload_peak;
    found->push_back(std::move(alternative));
  }
}

void MeasureAtPeak(const DeviceFacts& facts, const PeakView& peak, Alternative* alternative) {
  for (const PeakGroup& group : peak.groups) {
    if (!Belongs(facts, *alternative, group.bytes, group.fact)) continue;
    alternative->at_peak += group.bytes * group.count;
    if (alternative->kind == AlternativeKind::kChunkLoss) {
      alternative->bytes = std::max(alternative->bytes, group.bytes);
    }
  }
}

// The same of blocks that are freed late: those that would be gone at the peak. The phase with most of them is told.
void MeasureLateAtPeak(const DeviceFacts& facts, const std::vector<LateFree>& late, std::uint64_t peak_event,
                       Alternative* alternative) {
  std::map<std::uint32_t, Bytes> roles;
  for (const LateFree& entry : late) {
    const Allocation& allocation = facts.device.allocations[entry.block];
    if (entry.kind != alternative->late || entry.early_event > peak_event || allocation.free_event < peak_event) {
      continue;
    }
    alternative->at_peak += allocation.bytes;
    alternative->bytes = std::max(alternative->bytes, allocation.bytes);
    roles[facts.role_of[facts.blocks[entry.block].phase]] += allocation.bytes;
  }
  if (!roles.empty()) alternative->role = LargestKeys(roles, 1).front();
}

// Plays all alternatives in one sweep.
class Player {
 public:
  Player(const DeviceFacts& facts, const std::vector<LateFree>& late, std::uint32_t peak_segment,
         std::vector<Alternative>* alternatives)
      : facts_(facts),
        late_(late),
        peak_segment_(peak_segment),
        alternatives_(*alternatives),
        saved_(alternatives->size()) {
    for (std::size_t i = 0; i < alternatives->size(); ++i) {
      if (alternatives_[i].kind == AlternativeKind::kChunkLoss) player_of_turn_ = i;
      if (alternatives_[i].kind == AlternativeKind::kFreeLate) {
        player_of_late_[static_cast<std::size_t>(alternatives_[i].late)] = i;
      }
    }
  }

  void Play() {
    Bytes live = 0;
    Sweep sweep(facts_.device);
    for (SweepStep step; sweep.Next(&step);) {
      FreeEarly(step.event);
      MakeEarly(step.event);
      const Bytes bytes = facts_.device.allocations[step.allocation].bytes;
      live = step.is_free ? live - bytes : live + bytes;
      TakeStep(step, bytes);
      for (std::size_t i = 0; i < saved_.size(); ++i) {
        alternatives_[i].peak = std::max(alternatives_[i].peak, live - saved_[i]);
      }
    }
  }

 private:
  static constexpr std::size_t kNobody = static_cast<std::size_t>(-1);

  void TakeStep(const SweepStep& step, Bytes bytes) {
    const std::uint64_t members = MembersOf(step.allocation);
    const bool moves = !step.is_free && facts_.device.allocations[step.allocation].segment == peak_segment_;
    for (std::size_t i = 0; i < saved_.size(); ++i) {
      if ((members >> i & 1) == 0) continue;
      const auto saving = static_cast<Bytes>(static_cast<double>(bytes) * (1 - alternatives_[i].keep));
      saved_[i] = step.is_free ? saved_[i] - saving : saved_[i] + saving;
      if (moves) alternatives_[i].moved += bytes;
    }
    if (!step.is_free && made_.erase(step.allocation) > 0) saved_[player_of_turn_] += bytes;
    if (const auto early = early_.find(step.allocation); step.is_free && early != early_.end()) {
      saved_[early->second] -= bytes;
      early_.erase(early);
    }
  }

  // Blocks that could have been freed before the event.
  void FreeEarly(std::uint64_t event) {
    for (; next_late_ < late_.size() && late_[next_late_].early_event <= event; ++next_late_) {
      const std::size_t player = player_of_late_[static_cast<std::size_t>(late_[next_late_].kind)];
      if (player == kNobody) continue;
      saved_[player] += facts_.device.allocations[late_[next_late_].block].bytes;
      early_.emplace(late_[next_late_].block, player);
    }
  }

  // Gradients that a loss in parts has from the turn on, up to the event that makes them in one.
  void MakeEarly(std::uint64_t event) {
    if (player_of_turn_ == kNobody) return;
    const std::vector<TurnGradient>& gradients = alternatives_[player_of_turn_].turn.gradients;
    for (; next_gradient_ < gradients.size() && gradients[next_gradient_].turn_event <= event; ++next_gradient_) {
      made_.insert(gradients[next_gradient_].block);
      saved_[player_of_turn_] -= facts_.device.allocations[gradients[next_gradient_].block].bytes;
    }
  }

  // A bit for each alternative that the block belongs to.
  std::uint64_t MembersOf(std::uint32_t block) {
    std::uint64_t members = 0;
    for (std::size_t i = 0; i < alternatives_.size(); ++i) {
      const bool belongs =
          Belongs(facts_, alternatives_[i], facts_.device.allocations[block].bytes, facts_.blocks[block]);
      members |= std::uint64_t{belongs} << i;
    }
    return members;
  }

  const DeviceFacts& facts_;
  const std::vector<LateFree>& late_;
  const std::uint32_t peak_segment_;
  std::vector<Alternative>& alternatives_;
  std::vector<Bytes> saved_;
  std::array<std::size_t, kLateKinds> player_of_late_{kNobody, kNobody, kNobody, kNobody};  // index into alternatives_
  std::size_t next_late_ = 0;
  std::size_t player_of_turn_ = kNobody;
  std::size_t next_gradient_ = 0;
  absl::flat_hash_set<std::uint32_t> made_;                // gradients that count as there already
  absl::flat_hash_map<std::uint32_t, std::size_t> early_;  // blocks that count as freed, and for which alternative
};

}  // namespace

const char* AlternativeName(AlternativeKind kind) {
  switch (kind) {
    case AlternativeKind::kRecomputeLayer:
      return "recompute layer";
    case AlternativeKind::kOffloadLayer:
      return "offload layer";
    case AlternativeKind::kOffloadState:
      return "offload state";
    case AlternativeKind::kShardState:
      return "shard state";
    case AlternativeKind::kShardGradients:
      return "shard gradients";
    case AlternativeKind::kShardAll:
      return "shard all";
    case AlternativeKind::kNoOptimizerScratch:
      return "no optimizer scratch";
    case AlternativeKind::kChunkLoss:
      return "chunk loss";
    case AlternativeKind::kFreeLate:
      return "free late";
  }
  return "?";
}

std::vector<Alternative> FindAlternatives(const DeviceFacts& facts, std::uint32_t ranks) {
  const PeakView peak = GroupPeak(facts, kPeakGroups);
  const std::vector<LateFree> late = FindLateFrees(facts);
  std::vector<Alternative> found = Candidates(facts, ranks);
  for (Alternative& alternative : found) {
    if (alternative.kind == AlternativeKind::kFreeLate) {
      MeasureLateAtPeak(facts, late, peak.event, &alternative);
    } else {
      MeasureAtPeak(facts, peak, &alternative);
    }
  }
  std::erase_if(found, [](const Alternative& alternative) { return alternative.at_peak == 0; });
  const std::uint32_t segment = facts.phases.spans()[facts.phases.At(peak.event)].segment;
  Player(facts, late, segment, &found).Play();
  AddRecomputations(facts, peak.event, &found);
  std::erase_if(found, [&](const Alternative& alternative) { return alternative.peak >= peak.live_bytes; });
  std::stable_sort(found.begin(), found.end(),
                   [](const Alternative& a, const Alternative& b) { return a.peak < b.peak; });
  return found;
}

}  // namespace stalloc::planner
