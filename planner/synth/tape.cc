#include "planner/synth/tape.h"

#include <utility>

namespace stalloc::planner {
namespace {
constexpr std::int64_t kEventNs = 1000;
}

Tape::Tape(bool communication) : communication_(communication) {
  trace_.streams.push_back({.ordinal = 0, .device = 0, .handle = 0});
  if (communication) trace_.streams.push_back({.ordinal = 1, .device = 0, .handle = 1});
}

Tape::Tensor Tape::Allocate(Bytes bytes, Stream stream) {
  if (bytes == 0) return kNone;
  const Tensor tensor = trace_.allocations++;
  AddEvent({.kind = EventKind::kAlloc,
            .allocation = tensor,
            .bytes = BlockBytes(bytes),
            .stream = communication_ ? std::uint32_t{stream} : 0});
  return tensor;
}

void Tape::Free(Tensor tensor) {
  if (tensor != kNone) AddEvent({.kind = EventKind::kFree, .allocation = tensor});
}

void Tape::UsedBy(Tensor tensor, Stream stream) {
  if (!communication_ || tensor == kNone) return;
  AddEvent({.kind = EventKind::kRecordStream, .allocation = tensor, .stream = stream});
}

void Tape::AddMark(const Mark& mark) {
  AddEvent({.kind = EventKind::kMark, .mark = static_cast<std::uint32_t>(trace_.marks.size())});
  trace_.marks.push_back(mark);
}

void Tape::AddEvent(TraceEvent event) {
  event.time_ns = static_cast<std::int64_t>(trace_.events.size()) * kEventNs;
  trace_.events.push_back(event);
}

Trace Tape::Take() {
  trace_.complete = true;
  return std::move(trace_);
}

MarkedScope::MarkedScope(Tape& tape, Mark mark) : tape_(tape), mark_(std::move(mark)) {
  mark_.edge = MarkEdge::kBegin;
  tape_.AddMark(mark_);
}

MarkedScope::~MarkedScope() {
  mark_.edge = MarkEdge::kEnd;
  tape_.AddMark(mark_);
}

}  // namespace stalloc::planner
