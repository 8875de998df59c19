#include "planner/whatif/scaling.h"

#include <algorithm>
#include <cstddef>
#include <map>

#include "planner/analysis/sweep.h"

namespace stalloc::planner {
namespace {

// What goes before any layer has run, as weights in another type do, is of no micro-batch.
bool IsSetUp(const DeviceFacts& facts, const BlockFact& fact, const Allocation& allocation) {
  const std::vector<LayerEdge>& edges = facts.layers.edges();
  return fact.free_phase == fact.phase && !edges.empty() && allocation.free_event < edges.front().event;
}

// From a backward pass, and alive through another micro-batch's: a gradient of a loop that lets go of it before the
// optimizer begins.
bool OutlivesBackwardPass(const DeviceFacts& facts, const BlockFact& fact) {
  const std::vector<PhaseSpan>& spans = facts.phases.spans();
  if (spans[fact.phase].kind != PhaseKind::kBackward || fact.free_phase == kNone) return false;
  for (std::uint32_t phase = fact.phase + 1; phase < fact.free_phase; ++phase) {
    if (spans[phase].kind == PhaseKind::kBackward) return true;
  }
  return false;
}

bool Scales(const DeviceFacts& facts, const BlockFact& fact, const Allocation& allocation) {
  if (IsSetUp(facts, fact, allocation)) return false;
  switch (fact.memory_class) {
    case MemoryClass::kActivations:
    case MemoryClass::kDynamic:
      return true;
    case MemoryClass::kInputs:  // a data set that lies on the device as a whole is none of a micro-batch
      return fact.free_phase != kNone || facts.phases.spans()[fact.phase].kind != PhaseKind::kSetUp;
    case MemoryClass::kTemporaries:
      return !facts.InOptimizer(fact) && !OutlivesBackwardPass(facts, fact);
    default:
      return false;
  }
}

// Twice the area of the triangle, positive where `c` lies left of the way from `a` to `b`.
double TurnOf(const ScalingPoint& a, const ScalingPoint& b, const ScalingPoint& c) {
  const auto difference = [](std::int64_t from, std::int64_t to) {
    return static_cast<double>(to) - static_cast<double>(from);
  };
  return difference(a.scaling, b.scaling) * difference(a.fixed, c.fixed) -
         difference(a.fixed, b.fixed) * difference(a.scaling, c.scaling);
}

}  // namespace

std::vector<BlockPart> PartsByClass(const DeviceFacts& facts) {
  std::vector<BlockPart> parts;
  parts.reserve(facts.blocks.size());
  for (std::size_t i = 0; i < facts.blocks.size(); ++i) {
    const auto bytes = static_cast<std::int64_t>(facts.device.allocations[i].bytes);
    parts.push_back(Scales(facts, facts.blocks[i], facts.device.allocations[i]) ? BlockPart{0, bytes}
                                                                                : BlockPart{bytes, 0});
  }
  return parts;
}

std::vector<ScalingPoint> FindScaling(const DeviceFacts& facts, const std::vector<BlockPart>& parts) {
  std::map<std::int64_t, std::int64_t> highest;  // fixed, by scaling
  ScalingPoint now;
  Sweep sweep(facts.device);
  for (SweepStep step; sweep.Next(&step);) {
    const BlockPart& part = parts[step.allocation];
    now.fixed += step.is_free ? -part.fixed : part.fixed;
    now.scaling += step.is_free ? -part.scaling : part.scaling;
    const auto [found, is_new] = highest.try_emplace(now.scaling, now.fixed);
    if (!is_new) found->second = std::max(found->second, now.fixed);
  }
  std::vector<ScalingPoint> hull;
  for (const auto& [scaling, fixed] : highest) {
    const ScalingPoint point{fixed, scaling};
    while (hull.size() >= 2 && TurnOf(hull[hull.size() - 2], hull.back(), point) >= 0) hull.pop_back();
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
