#include "tests/engine/first_fit_plan.h"

#include <algorithm>
#include <limits>
#include <map>

namespace stalloc {
namespace {

// Lowest gap between the live blocks (offset -> bytes) that holds `bytes`.
Offset LowestGap(const std::map<Offset, Bytes>& live, Bytes bytes) {
  Offset at = 0;
  for (const auto& [offset, length] : live) {
    if (offset - at >= bytes) return at;
    at = offset + length;
  }
  return at;
}

}  // namespace

std::vector<ReplayStep> StepsOf(const std::vector<CorpusAllocation>& requests) {
  const Tick end = requests.empty() ? 0 : requests.back().alloc;
  std::vector<std::pair<Tick, ReplayStep>> timed;
  for (std::uint32_t i = 0; i < requests.size(); ++i) {
    const CorpusAllocation& request = requests[i];
    timed.push_back({request.alloc, {true, i}});
    const bool within = request.free >= 0 && request.free <= end;
    timed.push_back({within ? request.free : std::numeric_limits<Tick>::max(), {false, i}});
  }
  std::stable_sort(timed.begin(), timed.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<ReplayStep> steps;
  for (const auto& [tick, step] : timed) steps.push_back(step);
  return steps;
}

DevicePlan FirstFitPlan(const std::vector<CorpusAllocation>& requests) {
  DevicePlan plan;
  plan.slots.resize(requests.size());
  Script script = ScriptOf(requests);
  std::map<Offset, Bytes> live;
  std::uint32_t position = 0;  // of the last request
  for (const ReplayStep& step : StepsOf(requests)) {
    Slot& slot = plan.slots[step.request];
    if (!step.allocate) {
      live.erase(slot.offset);
      script.entries[step.request].expected_life = position + 1 - step.request;
      continue;
    }
    position = step.request;
    slot.capacity = BlockBytes(requests[step.request].bytes);
    slot.offset = LowestGap(live, slot.capacity);
    live[slot.offset] = slot.capacity;
    plan.arena_bytes = std::max(plan.arena_bytes, slot.offset + slot.capacity);
  }
  for (std::uint32_t i = 0; i < requests.size(); ++i) script.entries[i].slot = i;
  script.phases.push_back({Mark{MarkKind::kIteration, MarkEdge::kBegin, Pass::kNone, 0, 0, "", false}, 0});
  plan.streams.push_back({});
  plan.cycle.push_back(std::move(script));
  return plan;
}

}  // namespace stalloc
