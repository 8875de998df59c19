#include "planner/report/turn_sizes.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace stalloc::planner {
namespace {

constexpr std::size_t kTenth = 10;
constexpr std::size_t kLeastRequests = 4;  // at either side of a turn

struct Turn {
  std::uint32_t forward = 0;  // phases
  std::uint32_t backward = 0;
  std::uint64_t begin_event = 0;  // of the last tenth of the forward pass
  std::uint64_t end_event = 0;    // behind the first tenth of the backward pass
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

std::vector<Turn> FindTurns(const DeviceFacts& facts, const std::vector<std::vector<std::uint32_t>>& blocks) {
  const std::vector<PhaseSpan>& spans = facts.phases.spans();
  const auto event_of = [&](std::uint32_t block) { return std::uint64_t{facts.device.allocations[block].event}; };
  const auto near = [](std::size_t requests) {
    return std::min(requests, std::max(kLeastRequests, requests / kTenth));
  };
  std::vector<Turn> turns;
  for (std::uint32_t i = 0; i < spans.size(); ++i) {
    if (spans[i].kind != PhaseKind::kForward || blocks[i].empty()) continue;
    std::uint32_t next = i + 1;
    while (next < spans.size() && spans[next].kind == PhaseKind::kBetween) ++next;
    if (next == spans.size() || spans[next].kind != PhaseKind::kBackward || blocks[next].empty()) continue;
    if (!SameMicrobatch(spans[i].name, spans[next].name)) continue;
    const std::size_t first = blocks[i].size() - near(blocks[i].size());
    const std::size_t behind = near(blocks[next].size());
    const std::uint64_t end = next + 1 < spans.size() ? spans[next + 1].begin_event : facts.events;
    turns.push_back(
        {i, next, event_of(blocks[i][first]), behind < blocks[next].size() ? event_of(blocks[next][behind]) : end});
  }
  return turns;
}

}  // namespace

absl::flat_hash_set<PhaseAndSize> FindTurnSizes(const DeviceFacts& facts) {
  const std::vector<std::vector<std::uint32_t>> blocks = BlocksByPhase(facts);
  absl::flat_hash_set<PhaseAndSize> found;
  for (const Turn& turn : FindTurns(facts, blocks)) {
    struct Seen {
      bool elsewhere = false;
      bool through = false;  // alive where the backward pass begins
    };
    absl::flat_hash_map<Bytes, Seen> sizes;
    const std::uint64_t middle = facts.phases.spans()[turn.backward].begin_event;
    for (const std::uint32_t phase : {turn.forward, turn.backward}) {
      for (const std::uint32_t block : blocks[phase]) {
        const Allocation& allocation = facts.device.allocations[block];
        Seen& seen = sizes[allocation.bytes];
        seen.elsewhere |= allocation.event < turn.begin_event || allocation.event >= turn.end_event ||
                          allocation.free_event > turn.end_event;
        seen.through |= allocation.event < middle && allocation.free_event >= middle;
      }
    }
    for (const auto& [bytes, seen] : sizes) {
      if (seen.elsewhere || !seen.through) continue;
      found.insert({turn.forward, bytes});
      found.insert({turn.backward, bytes});
    }
  }
  return found;
}

}  // namespace stalloc::planner
