#include "planner/whatif/alternatives.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>

#include "planner/analysis/sweep.h"
#include "planner/facts/largest_keys.h"
#include "planner/whatif/recomputation.h"
#include "planner/whatif/run_edit.h"

namespace stalloc::planner {
namespace {

constexpr std::size_t kLayers = 8;
constexpr std::size_t kPatterns = 16;
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
      return alternative.loss.sizes.contains({fact.phase, bytes});
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

std::vector<Alternative> Candidates(const DeviceFacts& facts, std::uint32_t ranks) {
  std::vector<Alternative> found{Make(AlternativeKind::kOffloadState), Make(AlternativeKind::kNoOptimizerScratch)};
  AddShards(ranks, &found);
  found.push_back(Make(AlternativeKind::kChunkLoss, 1 / kLossParts));
  found.back().loss = FindLossBlocks(facts);
  for (const LateKind late : {LateKind::kAfterBackward, LateKind::kAfterLayer, LateKind::kAfterOptimizer,
                              LateKind::kAfterIteration, LateKind::kNoBackward}) {
    found.push_back(Make(AlternativeKind::kFreeLate));
    found.back().late = late;
    found.back().at_least = late == LateKind::kNoBackward;  // blocks go within their layers, too
  }
  return found;
}

void AddRecomputations(const DeviceFacts& facts, const EditPlayer& player, std::vector<Alternative>* found) {
  for (Recomputation& each : FindRecomputations(facts, player, kPatterns, kLayers)) {
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

// For blocks that belong to it: what is live at the peak, and what was allocated in the peak's iteration.
void MeasureBlocks(const DeviceFacts& facts, std::uint64_t peak_event, std::uint32_t peak_segment,
                   Alternative* alternative) {
  for (std::size_t i = 0; i < facts.blocks.size(); ++i) {
    const Allocation& allocation = facts.device.allocations[i];
    if (!Belongs(facts, *alternative, allocation.bytes, facts.blocks[i])) continue;
    if (allocation.segment == peak_segment) alternative->moved += allocation.bytes;
    if (allocation.event > peak_event || allocation.free_event <= peak_event) continue;
    alternative->at_peak += allocation.bytes;
    if (alternative->kind == AlternativeKind::kChunkLoss) {
      alternative->bytes = std::max(alternative->bytes, allocation.bytes);
    }
  }
}

// The same of blocks that are freed late: those that would be gone at the peak. The phase with most of them is named.
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

RunEdit EditOf(const Alternative& alternative, const std::vector<LateFree>& late) {
  RunEdit edit;
  if (alternative.kind == AlternativeKind::kFreeLate) {
    for (const LateFree& entry : late) {
      if (entry.kind == alternative.late) edit.actions.push_back({entry.early_event, entry.block, false});
    }
  }
  // Gradients that a loss in parts has from its first part on, up to the event that makes them in one.
  for (const LossGradient& each : alternative.loss.gradients) {
    edit.actions.push_back({each.loss_event, each.block, true});
  }
  return edit;
}

std::vector<Bytes> SizesWith(const DeviceFacts& facts, const Alternative& alternative) {
  std::vector<Bytes> sizes = TracedSizes(facts);
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (!Belongs(facts, alternative, sizes[i], facts.blocks[i])) continue;
    sizes[i] -= static_cast<Bytes>(static_cast<double>(sizes[i]) * (1 - alternative.keep));
  }
  return sizes;
}

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
  const EditPlayer player(facts);
  const PeakMoment peak = FindPeakMoment(facts.device);
  const std::uint32_t segment = facts.phases.spans()[facts.phases.At(peak.event)].segment;
  const std::vector<LateFree> late = FindLateFrees(facts);
  std::vector<Alternative> found = Candidates(facts, ranks);
  for (Alternative& alternative : found) {
    if (alternative.kind == AlternativeKind::kFreeLate) {
      MeasureLateAtPeak(facts, late, peak.event, &alternative);
    } else {
      MeasureBlocks(facts, peak.event, segment, &alternative);
    }
  }
  std::erase_if(found, [](const Alternative& alternative) { return alternative.at_peak == 0; });
  for (Alternative& alternative : found) {
    alternative.peak = player.Play(EditOf(alternative, late), SizesWith(facts, alternative)).live;
  }
  AddRecomputations(facts, player, &found);
  std::erase_if(found, [&](const Alternative& alternative) { return alternative.peak >= peak.live_bytes; });
  std::stable_sort(found.begin(), found.end(),
                   [](const Alternative& a, const Alternative& b) { return a.peak < b.peak; });
  return found;
}

}  // namespace stalloc::planner
