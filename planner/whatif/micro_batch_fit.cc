#include "planner/whatif/micro_batch_fit.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "planner/analysis/edit_script.h"
#include "planner/analysis/peak.h"

namespace stalloc::planner {
namespace {

constexpr std::uint32_t kMaxEdits = 2000;

using Blocks = std::vector<std::uint32_t>;  // indices into DeviceTrace::allocations
using Requests = std::span<const std::uint32_t>;

bool IsOfTheModel(const BlockFact& fact) {
  return fact.memory_class == MemoryClass::kWeights || fact.memory_class == MemoryClass::kGradients ||
         fact.memory_class == MemoryClass::kOptimizerState;
}

// For what varies from iteration to iteration, as the tokens of an expert do, no two runs have the same.
bool HasPartner(const BlockFact& fact) { return !IsOfTheModel(fact) && fact.memory_class != MemoryClass::kDynamic; }

// The requests of each phase that may have a partner, in order; what is in no script takes no part.
std::vector<Blocks> RequestsByPhase(const DeviceFacts& facts) {
  std::vector<Blocks> requests(facts.phases.spans().size());
  for (std::uint32_t i = 0; i < facts.blocks.size(); ++i) {
    const BlockFact& fact = facts.blocks[i];
    if (!facts.device.allocations[i].outside && HasPartner(fact)) requests[fact.phase].push_back(i);
  }
  return requests;
}

// Finds the phase of another run that a phase of this run is like.
class PhaseIndex {
 public:
  explicit PhaseIndex(const DeviceFacts& facts) {
    const std::vector<PhaseSpan>& spans = facts.phases.spans();
    for (std::uint32_t i = 0; i < spans.size(); ++i) {
      by_role_.try_emplace({spans[i].segment, facts.roles[facts.role_of[i]]}, i);
      by_kind_[{spans[i].segment, spans[i].kind}] = i;
    }
    last_segment_ = spans.back().segment;
  }

  // kNone: there is none.
  [[nodiscard]] std::uint32_t Find(const PhaseSpan& span, const std::string& role) const {
    const std::uint32_t segment = std::min(span.segment, last_segment_);
    if (const auto found = by_role_.find({segment, role}); found != by_role_.end()) return found->second;
    const auto found = by_kind_.find({segment, span.kind});
    return found == by_kind_.end() ? kNone : found->second;
  }

 private:
  absl::flat_hash_map<std::pair<std::uint32_t, std::string>, std::uint32_t> by_role_;  // the first
  absl::flat_hash_map<std::pair<std::uint32_t, PhaseKind>, std::uint32_t> by_kind_;    // the last
  std::uint32_t last_segment_ = 0;
};

class Fitter {
 public:
  Fitter(const DeviceFacts& facts, const DeviceFacts& other, double ratio)
      : facts_(facts), other_(other), ratio_(ratio), partner_(facts.blocks.size(), kNone) {}

  MicroBatchFit Run() {
    Pair();
    MicroBatchFit fit;
    fit.parts = PartsByClass(facts_);
    for (std::uint32_t i = 0; i < partner_.size(); ++i) {
      if (partner_[i] != kNone) fit.parts[i] = PartOf(i);
    }
    Record(&fit);
    fit.other_peak_bytes = FindPeakMoment(other_.device).live_bytes;
    return fit;
  }

 private:
  void Pair() {
    const std::vector<Blocks> mine = RequestsByPhase(facts_);
    const std::vector<Blocks> theirs = RequestsByPhase(other_);
    const PhaseIndex index(other_);
    for (std::uint32_t phase = 0; phase < mine.size(); ++phase) {
      const std::string& role = facts_.roles[facts_.role_of[phase]];
      const std::uint32_t like = index.Find(facts_.phases.spans()[phase], role);
      if (like != kNone) PairPhase(mine[phase], theirs[like]);
    }
  }

  void PairPhase(Requests mine, Requests theirs) {
    std::size_t x_begin = 0;
    std::size_t y_begin = 0;
    const auto pair_faster = [&](std::size_t x_end, std::size_t y_end) {
      const Requests my_gap = mine.subspan(x_begin, x_end - x_begin);
      const Requests their_gap = theirs.subspan(y_begin, y_end - y_begin);
      for (const auto& [x, y] :
           PairsOf(my_gap, their_gap, [&](auto a, auto b) { return IsBetween(a, b, ratio_, ratio_ * ratio_); })) {
        partner_[my_gap[x]] = their_gap[y];
      }
    };
    // What grows at most in proportion, or just as the square, first; between such pairs may be what grows in between.
    for (const auto& [x, y] :
         PairsOf(mine, theirs, [&](auto a, auto b) { return IsBetween(a, b, 1, ratio_) || IsSquare(a, b); })) {
      partner_[mine[x]] = theirs[y];
      pair_faster(x, y);
      x_begin = x + 1;
      y_begin = y + 1;
    }
    pair_faster(mine.size(), theirs.size());
  }

  template <typename Comparable>
  static Matches PairsOf(Requests mine, Requests theirs, const Comparable& comparable) {
    if (mine.empty() || theirs.empty()) return {};
    const auto pairs = LongestCommonSubsequence(
        static_cast<std::uint32_t>(mine.size()), static_cast<std::uint32_t>(theirs.size()),
        [&](std::uint32_t x, std::uint32_t y) { return comparable(mine[x], theirs[y]); }, kMaxEdits);
    return pairs.value_or(Matches{});
  }

  // Whether `y` is as large as `x` times a number between two, but for rounding.
  [[nodiscard]] bool IsBetween(std::uint32_t x, std::uint32_t y, double least, double most) const {
    const auto one = static_cast<double>(facts_.device.allocations[x].bytes);
    const auto other = static_cast<double>(other_.device.allocations[y].bytes);
    const double rounding = static_cast<double>(kBlockAlignment) * std::max(1.0, ratio_);
    return one * std::min(least, most) - rounding <= other && other <= one * std::max(least, most) + rounding;
  }
  [[nodiscard]] bool IsSquare(std::uint32_t x, std::uint32_t y) const {
    const double grown = ratio_ * ratio_ * static_cast<double>(facts_.device.allocations[x].requested());
    return std::abs(grown - static_cast<double>(other_.device.allocations[y].requested())) < 1;
  }

  [[nodiscard]] double BytesOf(std::uint32_t block) const {
    return static_cast<double>(facts_.device.allocations[block].requested());
  }
  [[nodiscard]] double PartnerBytes(std::uint32_t block) const {
    return static_cast<double>(other_.device.allocations[partner_[block]].requested());
  }

  // Rounding up to blocks stays with what is fixed.
  [[nodiscard]] BlockPart PartOf(std::uint32_t block) const {
    const double one = BytesOf(block);
    const double other = PartnerBytes(block);
    BlockPart part;
    if (GrowsFaster(block)) {
      const double square = std::min(one, (other - ratio_ * one) / (ratio_ * (ratio_ - 1)));
      part.square = std::llround(square);
      part.scaling = std::llround(one - square);
    } else {
      part.scaling = std::llround(std::max(0.0, (other - one) / (ratio_ - 1)));
    }
    part.fixed = static_cast<std::int64_t>(facts_.device.allocations[block].bytes) - part.scaling - part.square;
    return part;
  }
  // Than the micro-batch. What is a few bytes more than in proportion is padded.
  [[nodiscard]] bool GrowsFaster(std::uint32_t block) const {
    const double more = (PartnerBytes(block) - ratio_ * BytesOf(block)) * (ratio_ > 1 ? 1 : -1);
    return more > static_cast<double>(kBlockAlignment) || (more > 0 && IsSquare(block, partner_[block]));
  }

  // What is live at the peak, by how it grows.
  void Record(MicroBatchFit* fit) const {
    const std::uint32_t peak = FindPeakMoment(facts_.device).event;
    for (std::uint32_t i = 0; i < partner_.size(); ++i) {
      const Allocation& allocation = facts_.device.allocations[i];
      if (allocation.event > peak || allocation.free_event < peak) continue;
      Bytes& sum = partner_[i] == kNone && !IsOfTheModel(facts_.blocks[i]) ? fit->unpaired_bytes
                   : fit->parts[i].square > 0                              ? fit->square_bytes
                   : fit->parts[i].scaling == 0                            ? fit->fixed_bytes
                   : std::abs(PartnerBytes(i) - ratio_ * BytesOf(i)) < static_cast<double>(kBlockAlignment)
                       ? fit->proportional_bytes
                       : fit->affine_bytes;
      sum += allocation.bytes;
    }
  }

  const DeviceFacts& facts_;
  const DeviceFacts& other_;
  const double ratio_;
  std::vector<std::uint32_t> partner_;  // by allocation
};

}  // namespace

MicroBatchFit FitMicroBatch(const DeviceFacts& facts, const DeviceFacts& other, double ratio) {
  return Fitter(facts, other, ratio).Run();
}

}  // namespace stalloc::planner
