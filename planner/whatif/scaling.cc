#include "planner/whatif/scaling.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <map>
#include <utility>

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

// The highest of some points: each from its `from` up to the next one's.
struct Piece {
  double from = 0;
  ScalingPoint point;
};
using Envelope = std::vector<Piece>;

// Where `a` and `b` are as high as each other; ascending, 0 to 2 of them.
std::vector<double> Crossings(const ScalingPoint& a, const ScalingPoint& b) {
  const auto square = static_cast<double>(a.square - b.square);
  const auto scaling = static_cast<double>(a.scaling - b.scaling);
  const auto fixed = static_cast<double>(a.fixed - b.fixed);
  if (square == 0) return scaling == 0 ? std::vector<double>{} : std::vector<double>{-fixed / scaling};
  const double under_root = scaling * scaling - 4 * square * fixed;
  if (under_root < 0) return {};
  // The root that loses no digits, and the other one by their product.
  const double half = -(scaling + std::copysign(std::sqrt(under_root), scaling)) / 2;
  if (half == 0) return {0};
  return {std::min(half / square, fixed / half), std::max(half / square, fixed / half)};
}

// The higher of `a` and `b` from `from` to `end`, which may be infinite.
void AddHigher(const ScalingPoint& a, const ScalingPoint& b, double from, double end, Envelope* envelope) {
  std::vector<double> ends;
  for (const double at : Crossings(a, b)) {
    if (from < at && at < end) ends.push_back(at);
  }
  ends.push_back(end);
  for (const double until : ends) {
    const double inside = std::isinf(until) ? 2 * from + 1 : (from + until) / 2;
    const ScalingPoint& higher = a.At(inside) >= b.At(inside) ? a : b;
    if (envelope->empty() || envelope->back().point != higher) envelope->push_back({from, higher});
    from = until;
  }
}

Envelope Merge(const Envelope& a, const Envelope& b) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const auto end_of = [](const Envelope& one, std::size_t i) {
    return i + 1 < one.size() ? one[i + 1].from : kInfinity;
  };
  Envelope merged;
  double from = 0;
  for (std::size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    const double end = std::min(end_of(a, i), end_of(b, j));
    AddHigher(a[i].point, b[j].point, from, end, &merged);
    from = end;
    if (end_of(a, i) == end) {
      ++i;
      j += end_of(b, j) == end ? 1 : 0;
    } else {
      ++j;
    }
  }
  return merged;
}

// REQUIRES: points[first, last) is not empty. Merging halves: the envelopes of many moments have few pieces.
Envelope EnvelopeOf(const std::vector<ScalingPoint>& points, std::size_t first, std::size_t last) {
  if (last - first == 1) return {{0, points[first]}};
  const std::size_t middle = (first + last) / 2;
  return Merge(EnvelopeOf(points, first, middle), EnvelopeOf(points, middle, last));
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
  std::map<std::pair<std::int64_t, std::int64_t>, std::int64_t> highest;  // fixed, by square and scaling
  ScalingPoint now;
  Sweep sweep(facts.device);
  for (SweepStep step; sweep.Next(&step);) {
    const BlockPart& part = parts[step.allocation];
    const std::int64_t sign = step.is_free ? -1 : 1;
    now.fixed += sign * part.fixed;
    now.scaling += sign * part.scaling;
    now.square += sign * part.square;
    const auto [found, is_new] = highest.try_emplace({now.square, now.scaling}, now.fixed);
    if (!is_new) found->second = std::max(found->second, now.fixed);
  }
  std::vector<ScalingPoint> points;
  points.reserve(highest.size());
  for (const auto& [growing, fixed] : highest) points.push_back({fixed, growing.second, growing.first});
  if (points.empty()) return points;
  std::vector<ScalingPoint> peaks;
  for (const Piece& piece : EnvelopeOf(points, 0, points.size())) {
    if (std::find(peaks.begin(), peaks.end(), piece.point) == peaks.end()) peaks.push_back(piece.point);
  }
  return peaks;
}

}  // namespace stalloc::planner
