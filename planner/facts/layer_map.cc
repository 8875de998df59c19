#include "planner/facts/layer_map.h"

#include <algorithm>
#include <cstddef>

namespace stalloc::planner {

LayerMap::LayerMap(const Segmentation& segmentation, const std::vector<Mark>& marks)
    : names_{""}, index_{{"", 0}}, spans_{{0, 0}} {
  for (const Segment& segment : segmentation.segments) {
    for (const SegmentMark& place : segment.marks) {
      const Mark& mark = marks[place.mark];
      if (mark.kind != MarkKind::kLayer) {
        CloseDownTo(0, place.event);
        continue;
      }
      const std::uint32_t name = Name(mark.name);
      if (mark.edge == MarkEdge::kBegin) {
        Open(place.event, name, mark.pass);
        continue;
      }
      const auto found = std::find_if(open_.rbegin(), open_.rend(), [&](const LayerEdge& edge) {
        return edge.name == name && edge.pass == mark.pass;
      });
      if (found != open_.rend()) {
        CloseDownTo(static_cast<std::size_t>(open_.rend() - found) - 1, place.event, &mark);
      }
    }
    CloseDownTo(0, segment.end_event);
  }
}

std::uint32_t LayerMap::Name(std::string_view layer) {
  if (const auto known = index_.find(layer); known != index_.end()) return known->second;
  const auto name = static_cast<std::uint32_t>(names_.size());
  names_.emplace_back(layer);
  index_.emplace(layer, name);
  return name;
}

std::uint32_t LayerMap::At(std::uint64_t event) const {
  const auto after = std::upper_bound(spans_.begin() + 1, spans_.end(), event,
                                      [](std::uint64_t at, const Span& span) { return at < span.begin_event; });
  return (after - 1)->name;
}

void LayerMap::Open(std::uint64_t event, std::uint32_t name, Pass pass) {
  open_.push_back({event, name, pass, true});
  edges_.push_back(open_.back());
  spans_.push_back({event, name});
}

void LayerMap::CloseDownTo(std::size_t depth, std::uint64_t event, const Mark* end) {
  if (open_.size() <= depth) return;
  while (open_.size() > depth) {
    LayerEdge edge{event, open_.back().name, open_.back().pass, false};
    if (end != nullptr && open_.size() == depth + 1) {
      edge.index = end->index;
      edge.inputs = end->chunk;
    }
    edges_.push_back(edge);
    open_.pop_back();
  }
  spans_.push_back({event, open_.empty() ? 0 : open_.back().name});
}

}  // namespace stalloc::planner
