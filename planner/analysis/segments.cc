#include "planner/analysis/segments.h"

#include <cstddef>
#include <utility>

namespace stalloc::planner {

void SegmentCutter::Take(std::uint64_t event, std::uint32_t mark_index, const Mark& mark) {
  if (IsGraphMark(mark)) result_.graph_marks.push_back({event, mark_index});
  if (Overruled(mark)) {
    ++result_.census.ignored_automatic;
  } else if (mark.kind == MarkKind::kFence) {
    TakeFence(event, mark);
  } else if (depth_ == 0) {
    Count(mark);
    if (mark.kind == MarkKind::kIteration && mark.edge == MarkEdge::kBegin) {
      OpenIteration(event, mark);
    } else {
      KeepInside(event, mark_index, mark);
    }
  }
}

Segmentation SegmentCutter::Finish(std::uint64_t events) {
  if (depth_ > 0) {  // the process ended inside a fence
    result_.fences.back().end_event = events;
  }
  result_.segments.back().end_event = events;
  return std::move(result_);
}

bool SegmentCutter::Overruled(const Mark& mark) {
  bool& explicit_seen = explicit_seen_[static_cast<std::size_t>(mark.kind)];
  explicit_seen = explicit_seen || !mark.automatic;
  return mark.automatic && explicit_seen;
}

void SegmentCutter::TakeFence(std::uint64_t event, const Mark& mark) {
  if (mark.edge == MarkEdge::kBegin) {
    if (depth_++ == 0) {
      ++result_.census.fences;
      result_.fences.push_back({event, event});
    }
  } else if (depth_ > 0 && --depth_ == 0) {
    result_.fences.back().end_event = event;
  }
}

void SegmentCutter::OpenIteration(std::uint64_t event, const Mark& mark) {
  result_.segments.back().end_event = event;
  Segment& segment = result_.segments.emplace_back();
  segment.begin_event = event;
  segment.index = mark.index;
}

void SegmentCutter::KeepInside(std::uint64_t event, std::uint32_t mark_index, const Mark& mark) {
  Segment& segment = result_.segments.back();
  segment.marks.push_back({event, mark_index});
  segment.ended = segment.ended || mark.kind == MarkKind::kIteration;
}

void SegmentCutter::Count(const Mark& mark) {
  MarkCensus& census = result_.census;
  const bool begin = mark.edge == MarkEdge::kBegin;
  census.iterations += begin && mark.kind == MarkKind::kIteration;
  census.automatic_iterations += begin && mark.kind == MarkKind::kIteration && mark.automatic;
  census.microbatches += begin && mark.kind == MarkKind::kMicrobatch;
  census.optimizers += begin && mark.kind == MarkKind::kOptimizer;
  census.layers += begin && mark.kind == MarkKind::kLayer;
}

Segmentation CutAtMarks(const Trace& trace) {
  SegmentCutter cutter;
  for (std::uint64_t event = 0; event < trace.events.size(); ++event) {
    if (trace.events[event].kind == EventKind::kMark) {
      cutter.Take(event, trace.events[event].mark, trace.marks[trace.events[event].mark]);
    }
  }
  return cutter.Finish(trace.events.size());
}

}  // namespace stalloc::planner
