#include "planner/facts/block_facts.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>

#include "planner/analysis/cycle.h"
#include "planner/analysis/graph_captures.h"
#include "planner/analysis/steady.h"

namespace stalloc::planner {
namespace {

// "iter 3, F 0" -> "F 0"; "set-up" stays.
std::string RoleOf(const PhaseSpan& span) {
  if (span.segment == 0 && span.kind == PhaseKind::kSetUp) return span.name;
  const std::size_t comma = span.name.find(", ");
  return comma == std::string::npos ? "iteration" : span.name.substr(comma + 2);
}

}  // namespace

void TraceClock::Take(const Trace& trace) {
  for (const TraceEvent& event : trace.events) {
    if (event.kind == EventKind::kHeld) {
      held.push_back({static_cast<std::uint32_t>(time_ns.size()), event.device, event.bytes});
    }
    time_ns.push_back(std::max(event.time_ns, end_ns()));
  }
}

DeviceFacts::DeviceFacts(const TracedRank& traced, const DeviceTrace& traced_device, const TraceClock& trace_clock)
    : device(traced_device),
      clock(trace_clock),
      events(traced.events),
      phases(traced.segmentation, traced.head.marks),
      layers(traced.segmentation, traced.head.marks),
      names(traced_device, traced.head.texts),
      calls(traced.head) {
  std::map<std::string, std::uint32_t> known;
  for (const PhaseSpan& span : phases.spans()) {
    const auto [found, is_new] = known.try_emplace(RoleOf(span), static_cast<std::uint32_t>(roles.size()));
    if (is_new) roles.push_back(found->first);
    role_of.push_back(found->second);
  }
  std::optional<SteadyModel> model;
  const std::uint32_t capturing = CapturingIterations(FindGraphCaptures(traced, device), traced.segmentation);
  if (const auto cycle = FindCycle(device, traced.segmentation, traced.head.complete, capturing); cycle.ok()) {
    model = CompareIterations(device, *cycle);
  }
  const MemoryClassifier classifier(device, model.has_value() ? &*model : nullptr, phases);
  blocks.reserve(device.allocations.size());
  for (const Allocation& allocation : device.allocations) {
    BlockFact& block = blocks.emplace_back();
    block.memory_class = classifier.Classify(allocation);
    block.by_lifetime = classifier.ClassifyByLifetime(allocation);
    block.phase = static_cast<std::uint32_t>(phases.At(allocation.event));
    if (allocation.freed()) block.free_phase = static_cast<std::uint32_t>(phases.At(allocation.free_event));
    block.layer = layers.At(allocation.event);
  }
  for (std::size_t i = 0; i < device.stacks.size(); ++i) blocks[i].stack = device.stacks[i];
  NameBlocks();
}

void DeviceFacts::NameBlocks() {
  for (std::size_t i = 0; i < device.tensors.size(); ++i) {
    const std::uint32_t allocation = device.tensors[i].allocation;
    if (i > 0 && device.tensors[i - 1].allocation == allocation) continue;
    BlockFact& block = blocks[allocation];
    block.role = device.allocations[allocation].role;
    block.names = names.Of(allocation);
    if (const std::string_view module = names.ModuleOf(allocation); !module.empty()) block.layer = layers.Name(module);
  }
}

}  // namespace stalloc::planner
