#include "planner/analysis/plan_builder.h"

#include <algorithm>

#include "planner/packing/finish/hand_overs.h"

namespace stalloc::planner {
namespace {

std::vector<Entry> BuildEntries(const DeviceTrace& device, const std::vector<TimelineEntry>& timeline) {
  std::vector<Entry> entries;
  entries.reserve(timeline.size());
  for (const TimelineEntry& from : timeline) {
    Entry entry;
    entry.bytes = from.bytes;
    entry.min_bytes = from.min_bytes;
    entry.max_bytes = from.max_bytes;
    entry.stream = device.allocations[from.allocation].stream;
    entry.slot = from.block == kNone ? kNoSlot : from.block;
    entry.entry_class = from.entry_class;
    entry.expected_life = from.life;
    entry.lent_slot = from.lent == kNone ? kNoSlot : from.lent;
    entries.push_back(entry);
  }
  return entries;
}

std::vector<StreamEdge> BuildStreamEdges(const Timeline& timeline, const Packing& packing) {
  std::vector<StreamEdge> edges;
  const std::vector<Block>& blocks = timeline.problem.blocks;
  if (!MayNeedWaits(timeline.problem)) return edges;
  for (const HandOver& hand_over : FindHandOvers(timeline.problem, packing.offsets, timeline.cycle())) {
    const std::uint32_t from = blocks[hand_over.from].stream;
    const std::uint32_t to = blocks[hand_over.to].stream;
    if (from != to) edges.push_back({hand_over.from, hand_over.to, from, to});
  }
  return edges;
}

}  // namespace

DevicePlan BuildDevicePlan(const DeviceTrace& device, const Timeline& timeline, const Packing& packing) {
  DevicePlan plan;
  plan.device = device.device;
  plan.arena_bytes = RoundUp(packing.height, kBlockAlignment);
  plan.streams = device.streams;
  plan.turns = timeline.copies;
  plan.slots.resize(timeline.problem.blocks.size());
  for (std::size_t i = 0; i < plan.slots.size(); ++i) {
    plan.slots[i].offset = packing.offsets[i];
    plan.slots[i].capacity = timeline.problem.blocks[i].bytes;
  }
  plan.lent_pools = timeline.lending.pools;
  for (const auto* const requests : {&timeline.lending.requests, &timeline.lending.early}) {
    for (const LentRequest& lent : *requests) plan.lent_slots.push_back({lent.offset, lent.bytes});
  }
  for (std::size_t s = 0; s < timeline.scripts.size(); ++s) {
    auto& scripts = s < timeline.prologue ? plan.prologue : plan.cycle;
    const TimelineScript& from = timeline.scripts[s];
    scripts.push_back({device.segments[from.segment].phases, BuildEntries(device, from.entries)});
  }
  plan.kept.entries = BuildEntries(device, timeline.kept);
  plan.stream_edges = BuildStreamEdges(timeline, packing);
  return plan;
}

}  // namespace stalloc::planner
