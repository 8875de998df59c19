#include "planner/report/growth.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "absl/container/flat_hash_map.h"
#include "planner/analysis/cycle.h"
#include "planner/analysis/sweep.h"

namespace stalloc::planner {
namespace {

std::vector<Bytes> LiveAtBegins(const DeviceTrace& device, const Segmentation& segmentation) {
  std::vector<Bytes> begins;
  Bytes live = 0;
  const auto open_before = [&](std::uint64_t event) {
    while (begins.size() < segmentation.segments.size() && segmentation.segments[begins.size()].begin_event <= event) {
      begins.push_back(live);
    }
  };
  Sweep sweep(device);
  for (SweepStep step; sweep.Next(&step);) {
    open_before(step.event);
    const Bytes bytes = device.allocations[step.allocation].bytes;
    live = step.is_free ? live - bytes : live + bytes;
  }
  open_before(kNever);
  return begins;
}

bool OutlivesTheNext(const DeviceTrace& device, const Allocation& allocation) {
  const bool judged = allocation.segment > 0 && allocation.segment + 2 < device.segments.size();
  const bool stays = !allocation.freed() || FreedAtExit(device, allocation);
  return judged && !allocation.fenced && (stays || allocation.free_segment > allocation.segment + 1);
}

Bytes BytesLeft(const GrowthGroup& group) {
  return group.bytes * std::accumulate(group.left.begin(), group.left.end(), std::uint64_t{0});
}

}  // namespace

Growth FindGrowth(const DeviceFacts& facts, const Segmentation& segmentation, std::size_t most_groups) {
  Growth growth;
  growth.begin_live = LiveAtBegins(facts.device, segmentation);
  using Key = std::tuple<Bytes, MemoryClass, std::uint32_t, std::uint32_t>;
  absl::flat_hash_map<Key, std::size_t> known;
  for (std::size_t i = 0; i < facts.blocks.size(); ++i) {
    const Allocation& allocation = facts.device.allocations[i];
    if (!OutlivesTheNext(facts.device, allocation)) continue;
    const BlockFact& fact = facts.blocks[i];
    const std::uint32_t role = facts.role_of[fact.phase];
    const auto [found, is_new] =
        known.try_emplace(Key{allocation.bytes, fact.memory_class, role, fact.layer}, growth.groups.size());
    if (is_new) {
      growth.groups.push_back({allocation.bytes, fact.memory_class, role, fact.layer,
                               std::vector<std::uint64_t>(segmentation.segments.size())});
    }
    ++growth.groups[found->second].left[allocation.segment];
  }
  std::stable_sort(growth.groups.begin(), growth.groups.end(),
                   [](const GrowthGroup& a, const GrowthGroup& b) { return BytesLeft(a) > BytesLeft(b); });
  if (growth.groups.size() > most_groups) growth.groups.resize(most_groups);
  return growth;
}

}  // namespace stalloc::planner
