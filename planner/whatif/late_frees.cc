#include "planner/whatif/late_frees.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"

namespace stalloc::planner {
namespace {

// By phase, the ends of later phases that a block of it should not outlive. kNever: there is none.
class PhaseEnds {
 public:
  explicit PhaseEnds(const DeviceFacts& facts) : spans_(facts.phases.spans()), events_(facts.events) {
    backward_.resize(spans_.size(), kNever);
    optimizer_.resize(spans_.size(), kNever);
    iteration_.resize(spans_.size(), kNever);
    // From the back: what is found first ends last.
    absl::flat_hash_map<std::string, std::uint64_t> backward_end;
    std::uint64_t optimizer_end = kNever;
    std::uint64_t iteration_end = kNever;
    for (std::size_t i = spans_.size(); i-- > 0;) {
      if (i + 1 < spans_.size() && spans_[i].segment != spans_[i + 1].segment) {
        backward_end.clear();
        optimizer_end = kNever;
        iteration_end = EndOf(i);
      }
      iteration_[i] = iteration_end;
      const PhaseSpan& span = spans_[i];
      if (span.kind == PhaseKind::kBackward) backward_end.try_emplace(WithoutPass(span.name), EndOf(i));
      if (span.kind == PhaseKind::kOptimizer && optimizer_end == kNever) optimizer_end = EndOf(i);
      optimizer_[i] = optimizer_end;
      if (span.kind == PhaseKind::kForward) {
        const auto found = backward_end.find(WithoutPass(span.name));
        if (found != backward_end.end()) backward_[i] = found->second;
      }
    }
  }

  // For the backward pass of the forward pass's micro-batch and chunk.
  [[nodiscard]] std::uint64_t OwnBackward(std::uint32_t phase) const { return backward_[phase]; }
  // For the last optimizer's part in the phase's iteration.
  [[nodiscard]] std::uint64_t Optimizer(std::uint32_t phase) const { return optimizer_[phase]; }
  // The same, or of the iteration where no mark shows the optimizer's; kNever of the last one, and of a set-up
  // without an optimizer's part.
  [[nodiscard]] std::uint64_t IterationOrOptimizer(std::uint32_t phase) const {
    if (optimizer_[phase] != kNever) return optimizer_[phase];
    return spans_[phase].segment > 0 ? iteration_[phase] : kNever;
  }

 private:
  // "iter 3, F 0 chunk 1" -> "iter 3,  0 chunk 1"; W is a half of B, and the later one ends it.
  static std::string WithoutPass(const std::string& name) {
    const std::size_t comma = name.find(", ");
    if (comma == std::string::npos) return name;
    const std::size_t blank = name.find(' ', comma + 2);
    return blank == std::string::npos ? name : name.substr(0, comma + 2) + name.substr(blank);
  }

  [[nodiscard]] std::uint64_t EndOf(std::size_t span) const {
    return span + 1 < spans_.size() ? spans_[span + 1].begin_event : events_;
  }

  const std::vector<PhaseSpan>& spans_;
  const std::uint64_t events_;
  std::vector<std::uint64_t> backward_;
  std::vector<std::uint64_t> optimizer_;
  std::vector<std::uint64_t> iteration_;
};

// Where the backward visits of each layer end, ascending.
std::vector<std::vector<std::uint64_t>> BackwardVisits(const LayerMap& layers) {
  std::vector<std::vector<std::uint64_t>> ends(layers.names().size());
  for (const LayerEdge& edge : layers.edges()) {
    if (!edge.begin && edge.pass == Pass::kBackward) ends[edge.name].push_back(edge.event);
  }
  return ends;
}

// The first visit that ends after the block's pass; the micro-batch's own, if passes of a layer alternate.
std::uint64_t VisitAfter(const std::vector<std::uint64_t>& ends, std::uint64_t begin, std::uint64_t end) {
  const auto found = std::upper_bound(ends.begin(), ends.end(), begin);
  return found == ends.end() || *found > end ? kNever : *found;
}

// Forward passes of whole models that no backward pass follows, and the layers inside them.
class ForwardOnly {
 public:
  explicit ForwardOnly(const DeviceFacts& facts) {
    std::size_t depth = 0;
    Visit visit;
    absl::flat_hash_set<std::uint32_t> with_backward;
    std::vector<Visit> open;  // forward passes of models whose backward pass may come
    for (const LayerEdge& edge : facts.layers.edges()) {
      if (!edge.begin) --depth;
      if (depth == 0 && edge.begin) visit = {edge.name, edge.event, 0, {}};
      if (depth == 0 && !edge.begin && edge.pass == Pass::kForward && edge.index != -1) {
        visit.end = edge.event;
        open.push_back(std::move(visit));
      }
      if (depth == 0 && edge.begin && edge.pass == Pass::kBackward) {
        with_backward.insert(edge.name);
        DropLast(edge.name, &open);
      }
      if (depth == 1 && !edge.begin) visit.layer_ends.push_back(edge.event);
      if (edge.begin) ++depth;
    }
    // What no mark ever follows has no marks of its backward pass.
    std::erase_if(open, [&](const Visit& each) { return !with_backward.contains(each.name); });
    visits_ = std::move(open);
  }

  // Where a block of such a pass would be gone at the latest if it had no graph; kNever: it is of none, or goes with
  // it.
  [[nodiscard]] std::uint64_t EndOf(const Allocation& allocation) const {
    const auto after = std::upper_bound(visits_.begin(), visits_.end(), allocation.event,
                                        [](std::uint64_t event, const Visit& visit) { return event < visit.begin; });
    if (after == visits_.begin()) return kNever;
    const Visit& visit = *std::prev(after);
    if (allocation.event >= visit.end || allocation.free_event < visit.end) return kNever;
    const auto own = std::upper_bound(visit.layer_ends.begin(), visit.layer_ends.end(), allocation.event);
    if (visit.layer_ends.end() - own < 2) return kNever;  // of the last layer: its output
    return *std::next(own);
  }

 private:
  struct Visit {
    std::uint32_t name = 0;
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    std::vector<std::uint64_t> layer_ends;  // ascending
  };

  static void DropLast(std::uint32_t name, std::vector<Visit>* open) {
    const auto last =
        std::find_if(open->rbegin(), open->rend(), [&](const Visit& visit) { return visit.name == name; });
    if (last != open->rend()) open->erase(std::next(last).base());
  }

  std::vector<Visit> visits_;  // ascending
};

// By its name or by the marks: without either an output that stays may look like one.
bool IsSurelyGradient(const DeviceFacts& facts, std::uint32_t block) {
  const BlockFact& fact = facts.blocks[block];
  const bool marked =
      fact.role == TensorRole::kGradient || facts.phases.spans()[fact.phase].kind == PhaseKind::kBackward;
  return marked && fact.by_lifetime == MemoryClass::kGradients;
}

bool IsTransient(const DeviceFacts& facts, const Allocation& allocation) {
  return allocation.freed() && !allocation.outside && !IsPersistent(facts.device, allocation);
}

}  // namespace

const char* LateKindName(LateKind kind) {
  switch (kind) {
    case LateKind::kAfterBackward:
      return "after the backward";
    case LateKind::kAfterLayer:
      return "after the layer";
    case LateKind::kAfterOptimizer:
      return "after the optimizer";
    case LateKind::kAfterIteration:
      return "after the iteration";
    case LateKind::kNoBackward:
      return "without a backward";
  }
  return "?";
}

std::vector<LateFree> FindLateFrees(const DeviceFacts& facts) {
  const PhaseEnds ends(facts);
  const std::vector<std::vector<std::uint64_t>> visits = BackwardVisits(facts.layers);
  const ForwardOnly forward_only(facts);
  std::vector<LateFree> late;
  for (std::uint32_t i = 0; i < facts.blocks.size(); ++i) {
    const Allocation& allocation = facts.device.allocations[i];
    const BlockFact& fact = facts.blocks[i];
    // One that still lives in the end is late where a graph alone keeps it.
    if (const std::uint64_t end = forward_only.EndOf(allocation); end != kNever) {
      late.push_back({i, LateKind::kNoBackward, end});
      continue;
    }
    if (!IsTransient(facts, allocation)) continue;
    LateFree found{i, LateKind::kAfterBackward, kNever};
    const auto consider = [&](LateKind kind, std::uint64_t event) {
      if (event < allocation.free_event && event < found.early_event) found = {i, kind, event};
    };
    if (facts.phases.spans()[fact.phase].kind == PhaseKind::kForward) {
      const std::uint64_t backward = ends.OwnBackward(fact.phase);
      consider(LateKind::kAfterBackward, backward);
      // What outlives the whole backward pass is in a variable: nobody can free it before.
      if (fact.layer != 0 && backward != kNever && allocation.free_event < backward) {
        consider(LateKind::kAfterLayer, VisitAfter(visits[fact.layer], allocation.event, backward));
      }
    } else if (IsSurelyGradient(facts, i)) {
      consider(LateKind::kAfterOptimizer, ends.Optimizer(fact.phase));
    } else if (!facts.InOptimizer(fact)) {
      consider(LateKind::kAfterIteration, ends.IterationOrOptimizer(fact.phase));
    }
    if (found.early_event != kNever) late.push_back(found);
  }
  std::stable_sort(late.begin(), late.end(),
                   [](const LateFree& a, const LateFree& b) { return a.early_event < b.early_event; });
  return late;
}

}  // namespace stalloc::planner
