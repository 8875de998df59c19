#include "planner/report/alternatives.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "planner/analysis/sweep.h"
#include "planner/report/block_tables.h"

namespace stalloc::planner {
namespace {

constexpr std::size_t kLayers = 8;
constexpr std::size_t kPatterns = 16;
constexpr std::size_t kSizes = 8;
constexpr std::size_t kPeakGroups = 100000;

Alternative Make(AlternativeKind kind, double keep = 0) {
  Alternative alternative;
  alternative.kind = kind;
  alternative.keep = keep;
  return alternative;
}

bool IsOptimizerPhase(const DeviceFacts& facts, const BlockFact& fact) {
  return facts.phases.spans()[fact.phase].kind == PhaseKind::kOptimizer;
}

bool Belongs(const DeviceFacts& facts, const Alternative& alternative, Bytes bytes, const BlockFact& fact) {
  switch (alternative.kind) {
    case AlternativeKind::kRecomputeLayer:
      return fact.memory_class == MemoryClass::kActivations && alternative.member[fact.layer];
    case AlternativeKind::kRecomputeAll:
      return fact.memory_class == MemoryClass::kActivations;
    case AlternativeKind::kDropActivations:
      return fact.memory_class == MemoryClass::kActivations && bytes == alternative.bytes;
    case AlternativeKind::kOffloadState:
    case AlternativeKind::kShardState:
      return fact.memory_class == MemoryClass::kOptimizerState;
    case AlternativeKind::kNoOptimizerScratch:
      return fact.memory_class == MemoryClass::kTemporaries && IsOptimizerPhase(facts, fact);
    case AlternativeKind::kChunk:
      return fact.memory_class == MemoryClass::kTemporaries && bytes == alternative.bytes &&
             facts.role_of[fact.phase] == alternative.role;
  }
  return false;
}

// The `most` keys with most bytes.
template <typename Key>
std::vector<Key> Largest(const std::map<Key, Bytes>& sums, std::size_t most) {
  std::vector<std::pair<Bytes, Key>> order;
  for (const auto& [key, bytes] : sums) order.push_back({bytes, key});
  std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<Key> keys;
  for (std::size_t i = 0; i < std::min(most, order.size()); ++i) keys.push_back(order[i].second);
  return keys;
}

// "blocks.3.mlp" -> "blocks.*.mlp".
std::string PatternOf(absl::string_view path) {
  return absl::StrJoin(absl::StrSplit(path, '.'), ".", [](std::string* out, absl::string_view part) {
    const bool number = !part.empty() && std::all_of(part.begin(), part.end(), absl::ascii_isdigit);
    absl::StrAppend(out, number ? "*" : part);
  });
}

// Layers, and kinds of layers, with the most activations at the peak; of each, what is inside it belongs to it.
class LayerGroups {
 public:
  LayerGroups(const std::vector<std::string>& names, const std::map<std::uint32_t, Bytes>& at_peak)
      : names_(names), known_(names.begin(), names.end()) {
    for (const auto& [layer, bytes] : at_peak) {
      all_ += bytes;
      ForAncestors(layer, [&](const std::string& path) {
        singles_[path] += bytes;
        if (const std::string pattern = PatternOf(path); pattern != path) patterns_[pattern] += bytes;
      });
    }
    // A layer that holds all others is no choice.
    std::erase_if(singles_, [&](const auto& single) { return single.second == all_ && at_peak.size() > 1; });
  }

  void AddTo(std::vector<Alternative>* found) const {
    for (const std::string& path : Largest(patterns_, kPatterns)) Add(path, true, found);
    for (const std::string& path : Largest(singles_, kLayers)) Add(path, false, found);
  }

 private:
  // Of the layers that hold `layer`, and itself.
  template <typename Call>
  void ForAncestors(std::uint32_t layer, const Call& call) const {
    const std::string& name = names_[layer];
    for (std::size_t end = name.find('.');; end = name.find('.', end + 1)) {
      if (const std::string path = name.substr(0, end); known_.count(path) > 0) call(path);
      if (end == std::string::npos) return;
    }
  }

  void Add(const std::string& group, bool pattern, std::vector<Alternative>* found) const {
    Alternative& alternative = found->emplace_back();
    alternative.kind = AlternativeKind::kRecomputeLayer;
    alternative.layers = group;
    alternative.member.resize(names_.size());
    for (std::uint32_t layer = 1; layer < names_.size(); ++layer) {
      ForAncestors(layer, [&](const std::string& path) {
        if ((pattern ? PatternOf(path) : path) == group) alternative.member[layer] = true;
      });
    }
  }

  const std::vector<std::string>& names_;
  const std::set<std::string> known_;
  std::map<std::string, Bytes> singles_;
  std::map<std::string, Bytes> patterns_;
  Bytes all_ = 0;
};

// What is live at the peak decides what is worth playing.
std::vector<Alternative> Candidates(const DeviceFacts& facts, const PeakView& peak, std::uint32_t world_size) {
  std::map<std::uint32_t, Bytes> layers;
  std::map<Bytes, Bytes> sizes;
  std::map<std::pair<Bytes, std::uint32_t>, Bytes> scratch;
  for (const PeakGroup& group : peak.groups) {
    const Bytes bytes = group.bytes * group.count;
    if (group.fact.memory_class == MemoryClass::kActivations) {
      (group.fact.layer == 0 ? sizes[group.bytes] : layers[group.fact.layer]) += bytes;
    } else if (group.fact.memory_class == MemoryClass::kTemporaries && !IsOptimizerPhase(facts, group.fact)) {
      scratch[{group.bytes, facts.role_of[group.fact.phase]}] += bytes;
    }
  }
  std::vector<Alternative> found{Make(AlternativeKind::kRecomputeAll), Make(AlternativeKind::kOffloadState),
                                 Make(AlternativeKind::kNoOptimizerScratch)};
  if (world_size > 1) found.push_back(Make(AlternativeKind::kShardState, 1.0 / world_size));
  LayerGroups(facts.layers.names(), layers).AddTo(&found);
  for (const Bytes bytes : Largest(sizes, kSizes)) {
    found.push_back(Make(AlternativeKind::kDropActivations));
    found.back().bytes = bytes;
  }
  for (const auto& [bytes, role] : Largest(scratch, kSizes)) {
    found.push_back(Make(AlternativeKind::kChunk, 0.5));
    found.back().role = role;
    found.back().bytes = bytes;
  }
  return found;
}

// Plays all alternatives in one sweep.
class Player {
 public:
  Player(const DeviceFacts& facts, std::vector<Alternative>* alternatives)
      : facts_(facts), alternatives_(*alternatives), saved_(alternatives->size()) {}

  void Play() {
    Bytes live = 0;
    Sweep sweep(facts_.device);
    for (SweepStep step; sweep.Next(&step);) {
      const Bytes bytes = facts_.device.allocations[step.allocation].bytes;
      const std::uint64_t members = MembersOf(step.allocation);
      live = step.is_free ? live - bytes : live + bytes;
      for (std::size_t i = 0; i < saved_.size(); ++i) {
        if ((members >> i & 1) != 0) {
          const auto saving = static_cast<Bytes>(static_cast<double>(bytes) * (1 - alternatives_[i].keep));
          saved_[i] = step.is_free ? saved_[i] - saving : saved_[i] + saving;
        }
        alternatives_[i].peak = std::max(alternatives_[i].peak, live - saved_[i]);
      }
    }
  }

 private:
  // A bit for each alternative that the block belongs to; blocks that are alike share the answer.
  std::uint64_t MembersOf(std::uint32_t block) {
    const BlockFact& fact = facts_.blocks[block];
    const Bytes bytes = facts_.device.allocations[block].bytes;
    if (fact.memory_class != MemoryClass::kActivations && fact.memory_class != MemoryClass::kTemporaries &&
        fact.memory_class != MemoryClass::kOptimizerState) {
      return 0;
    }
    std::uint64_t members = 0;
    for (std::size_t i = 0; i < alternatives_.size(); ++i) {
      members |= std::uint64_t{Belongs(facts_, alternatives_[i], bytes, fact)} << i;
    }
    return members;
  }

  const DeviceFacts& facts_;
  std::vector<Alternative>& alternatives_;
  std::vector<Bytes> saved_;
};
static_assert(4 + kLayers + kPatterns + 2 * kSizes <= 64, "an alternative is a bit");

bool Scales(const DeviceFacts& facts, const BlockFact& fact) {
  switch (fact.memory_class) {
    case MemoryClass::kActivations:
    case MemoryClass::kDynamic:
      return true;
    case MemoryClass::kTemporaries:
      return !IsOptimizerPhase(facts, fact);
    default:
      return false;
  }
}

// Twice the area of the triangle, positive where `c` lies left of the way from `a` to `b`.
double Turn(const ScalingPoint& a, const ScalingPoint& b, const ScalingPoint& c) {
  const auto difference = [](Bytes from, Bytes to) { return static_cast<double>(to) - static_cast<double>(from); };
  return difference(a.scaling, b.scaling) * difference(a.fixed, c.fixed) -
         difference(a.fixed, b.fixed) * difference(a.scaling, c.scaling);
}

}  // namespace

const char* AlternativeName(AlternativeKind kind) {
  switch (kind) {
    case AlternativeKind::kRecomputeLayer:
      return "recompute layer";
    case AlternativeKind::kRecomputeAll:
      return "recompute all";
    case AlternativeKind::kDropActivations:
      return "drop activations";
    case AlternativeKind::kOffloadState:
      return "offload state";
    case AlternativeKind::kShardState:
      return "shard state";
    case AlternativeKind::kNoOptimizerScratch:
      return "no optimizer scratch";
    case AlternativeKind::kChunk:
      return "chunk";
  }
  return "?";
}

std::vector<Alternative> FindAlternatives(const DeviceFacts& facts, std::uint32_t world_size) {
  const PeakView peak = GroupPeak(facts, kPeakGroups);
  std::vector<Alternative> found = Candidates(facts, peak, world_size);
  for (Alternative& alternative : found) {
    for (const PeakGroup& group : peak.groups) {
      if (Belongs(facts, alternative, group.bytes, group.fact)) alternative.at_peak += group.bytes * group.count;
    }
  }
  std::erase_if(found, [](const Alternative& alternative) { return alternative.at_peak == 0; });
  Player(facts, &found).Play();
  std::erase_if(found, [&](const Alternative& alternative) { return alternative.peak >= peak.live_bytes; });
  std::stable_sort(found.begin(), found.end(),
                   [](const Alternative& a, const Alternative& b) { return a.peak < b.peak; });
  return found;
}

std::vector<ScalingPoint> FindScaling(const DeviceFacts& facts) {
  std::map<Bytes, Bytes> highest;  // fixed, by scaling
  ScalingPoint now;
  Sweep sweep(facts.device);
  for (SweepStep step; sweep.Next(&step);) {
    const Bytes bytes = facts.device.allocations[step.allocation].bytes;
    Bytes& part = Scales(facts, facts.blocks[step.allocation]) ? now.scaling : now.fixed;
    part = step.is_free ? part - bytes : part + bytes;
    Bytes& fixed = highest[now.scaling];
    fixed = std::max(fixed, now.fixed);
  }
  std::vector<ScalingPoint> hull;
  for (const auto& [scaling, fixed] : highest) {
    const ScalingPoint point{fixed, scaling};
    while (hull.size() >= 2 && Turn(hull[hull.size() - 2], hull.back(), point) >= 0) hull.pop_back();
    hull.push_back(point);
  }
  // Only scaling that grows matters: where more scales and more is fixed, the lesser point is never the maximum.
  std::vector<ScalingPoint> corners;
  for (const ScalingPoint& point : hull) {
    while (!corners.empty() && corners.back().fixed <= point.fixed) corners.pop_back();
    corners.push_back(point);
  }
  return corners;
}

}  // namespace stalloc::planner
