#include "planner/whatif/loss_sizes.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace stalloc::planner {
namespace {

constexpr std::size_t kTenth = 10;
constexpr std::size_t kLeastRequests = 4;  // at either side of a loss

struct Loss {
  std::uint32_t forward = 0;  // phases
  std::uint32_t backward = 0;
  std::uint64_t begin_event = 0;   // of the last tenth of the forward pass, or of its last layer
  std::uint64_t middle_event = 0;  // where the backward pass begins
  std::uint64_t end_event = 0;     // after the first tenth of the backward pass, or its first layer
  bool by_layers = false;          // the loss is outside of all layers, and middle_event is after its own backward pass
};

// The blocks of each phase, in order.
std::vector<std::vector<std::uint32_t>> BlocksByPhase(const DeviceFacts& facts) {
  std::vector<std::vector<std::uint32_t>> blocks(facts.phases.spans().size());
  for (std::uint32_t i = 0; i < facts.blocks.size(); ++i) blocks[facts.blocks[i].phase].push_back(i);
  return blocks;
}

// "iter 3, F 0 chunk 1" and "iter 3, B 0 chunk 1".
bool SameMicrobatch(const std::string& forward, const std::string& backward) {
  const std::size_t pass = forward.find(", ") + 2;
  return forward.size() == backward.size() && forward.compare(0, pass, backward, 0, pass) == 0 &&
         forward.compare(pass + 1, std::string::npos, backward, pass + 1, std::string::npos) == 0;
}

class LossFinder {
 public:
  LossFinder(const DeviceFacts& facts, const std::vector<std::vector<std::uint32_t>>& blocks)
      : facts_(facts), spans_(facts.phases.spans()), blocks_(blocks) {}

  // For each loss the ways in which it may be bounded, the likeliest first.
  [[nodiscard]] std::vector<std::vector<Loss>> Find() const {
    std::vector<std::vector<Loss>> losses;
    for (std::uint32_t i = 0; i < spans_.size(); ++i) {
      if (spans_[i].kind == PhaseKind::kForward) {
        std::uint32_t next = i + 1;
        while (next < spans_.size() && spans_[next].kind == PhaseKind::kBetween) ++next;
        if (next == spans_.size() || spans_[next].kind != PhaseKind::kBackward) continue;
        if (!SameMicrobatch(spans_[i].name, spans_[next].name)) continue;
        Add(i, blocks_[i], next, blocks_[next], spans_[next].begin_event, &losses.emplace_back());
      } else if (spans_[i].kind == PhaseKind::kUnmarked || spans_[i].kind == PhaseKind::kSetUp) {
        AddUnmarked(i, &losses.emplace_back());
      }
    }
    return losses;
  }

 private:
  void Add(std::uint32_t forward, const std::vector<std::uint32_t>& before, std::uint32_t backward,
           const std::vector<std::uint32_t>& after, std::uint64_t middle, std::vector<Loss>* losses) const {
    const auto event_of = [&](std::uint32_t block) { return std::uint64_t{facts_.device.allocations[block].event}; };
    const auto near = [](std::size_t requests) {
      return std::min(requests, std::max(kLeastRequests, requests / kTenth));
    };
    if (before.empty() || after.empty()) return;
    const std::uint64_t begin = event_of(before[before.size() - near(before.size())]);
    const std::size_t last = near(after.size());
    losses->push_back({forward, backward, begin, middle, last < after.size() ? event_of(after[last]) : End(backward)});
  }

  // Without marks of micro-batches the backward pass begins where the first layer's does. The loss reaches from the
  // last layer before it, which makes the logits, to the end of the first after it; or from one layer earlier, where
  // the last is the loss itself.
  void AddUnmarked(std::uint32_t phase, std::vector<Loss>* losses) const {
    std::uint64_t last_layer = 0;
    std::uint64_t layer_before = 0;
    const std::vector<LayerEdge>& edges = facts_.layers.edges();
    for (auto at = edges.begin(); at != edges.end(); ++at) {
      const LayerEdge& edge = *at;
      if (!edge.begin || edge.event < spans_[phase].begin_event) continue;
      if (edge.event >= End(phase)) return;
      if (edge.pass != Pass::kBackward) {
        layer_before = std::exchange(last_layer, edge.event);
        continue;
      }
      const auto end = std::find_if(at, edges.end(), [](const LayerEdge& each) { return !each.begin; });
      for (const std::uint64_t begin : {last_layer, layer_before}) {
        if (begin == 0 || end == edges.end()) continue;
        losses->push_back({phase, phase, begin, edge.event, end->event, true});
      }
      const std::vector<std::uint32_t>& all = blocks_[phase];
      const auto middle = std::find_if(all.begin(), all.end(), [&](std::uint32_t block) {
        return facts_.device.allocations[block].event >= edge.event;
      });
      return Add(phase, {all.begin(), middle}, phase, {middle, all.end()}, edge.event, losses);
    }
  }

  [[nodiscard]] std::uint64_t End(std::uint32_t phase) const {
    return phase + 1 < spans_.size() ? spans_[phase + 1].begin_event : facts_.events;
  }

  const DeviceFacts& facts_;
  const std::vector<PhaseSpan>& spans_;
  const std::vector<std::vector<std::uint32_t>>& blocks_;
};

using BlocksInPhases = std::vector<std::vector<std::uint32_t>>;  // by phase

// Sizes of which all blocks are at the loss.
absl::flat_hash_set<Bytes> SizesOf(const Loss& loss, const DeviceFacts& facts, const BlocksInPhases& blocks) {
  struct Seen {
    bool elsewhere = false;
    bool through = false;  // alive where the backward pass begins
  };
  absl::flat_hash_map<Bytes, Seen> sizes;
  for (const std::uint32_t phase : {loss.forward, loss.backward}) {
    for (const std::uint32_t block : blocks[phase]) {
      const Allocation& allocation = facts.device.allocations[block];
      Seen& seen = sizes[allocation.bytes];
      seen.elsewhere |= allocation.event < loss.begin_event || allocation.event >= loss.end_event ||
                        allocation.free_event > loss.end_event;
      seen.through |=
          allocation.event < loss.middle_event &&
          (loss.by_layers ? allocation.event >= loss.begin_event : allocation.free_event >= loss.middle_event);
    }
  }
  absl::flat_hash_set<Bytes> found;
  for (const auto& [bytes, seen] : sizes) {
    if (!seen.elsewhere && seen.through) found.insert(bytes);
  }
  return found;
}

void AddGradients(const Loss& loss, const absl::flat_hash_set<Bytes>& sizes, const DeviceFacts& facts,
                  const BlocksInPhases& blocks, std::vector<LossGradient>* gradients) {
  std::uint64_t last_free = 0;
  for (const std::uint32_t phase : {loss.forward, loss.backward}) {
    for (const std::uint32_t block : blocks[phase]) {
      const Allocation& allocation = facts.device.allocations[block];
      if (sizes.contains(allocation.bytes)) last_free = std::max(last_free, std::uint64_t{allocation.free_event});
    }
  }
  for (const std::uint32_t block : blocks[loss.backward]) {
    const Allocation& allocation = facts.device.allocations[block];
    if (allocation.event >= last_free) break;
    if (allocation.event < loss.middle_event || allocation.free_event < last_free) continue;
    const std::uint64_t from = loss.by_layers ? loss.begin_event : loss.middle_event;
    if (!sizes.contains(allocation.bytes)) gradients->push_back({from, block});
  }
}

// The first whose largest block is at least half of what any has; their number if none has one.
std::size_t ChooseWay(const std::vector<absl::flat_hash_set<Bytes>>& sizes) {
  std::vector<Bytes> largest;
  for (const auto& found : sizes) largest.push_back(found.empty() ? 0 : *std::max_element(found.begin(), found.end()));
  const Bytes most = largest.empty() ? 0 : *std::max_element(largest.begin(), largest.end());
  const auto chosen = std::find_if(largest.begin(), largest.end(), [&](Bytes bytes) { return bytes >= most / 2; });
  return most == 0 ? sizes.size() : static_cast<std::size_t>(chosen - largest.begin());
}

}  // namespace

LossBlocks FindLossBlocks(const DeviceFacts& facts) {
  const BlocksInPhases blocks = BlocksByPhase(facts);
  LossBlocks found;
  for (const std::vector<Loss>& ways : LossFinder(facts, blocks).Find()) {
    std::vector<absl::flat_hash_set<Bytes>> sizes;
    for (const Loss& loss : ways) sizes.push_back(SizesOf(loss, facts, blocks));
    const std::size_t chosen = ChooseWay(sizes);
    if (chosen == sizes.size()) continue;
    for (const Bytes bytes : sizes[chosen]) {
      found.sizes.insert({ways[chosen].forward, bytes});
      found.sizes.insert({ways[chosen].backward, bytes});
    }
    AddGradients(ways[chosen], sizes[chosen], facts, blocks, &found.gradients);
  }
  std::stable_sort(found.gradients.begin(), found.gradients.end(),
                   [](const LossGradient& a, const LossGradient& b) { return a.loss_event < b.loss_event; });
  return found;
}

}  // namespace stalloc::planner
