#include "proto/codec/trace_rows.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "proto/codec/messages.h"

namespace stalloc {
namespace {

std::int64_t DecodeZigzag(std::uint64_t value) { return static_cast<std::int64_t>((value >> 1) ^ (~(value & 1) + 1)); }

}  // namespace

std::string TraceRows::CheckColumns(const proto::TraceChunk& chunk) const {
  if (chunk.first_event() != events_) {
    return absl::StrCat("expected first event ", events_, ", found ", chunk.first_event());
  }
  const struct {
    const char* name;
    int size;
  } columns[] = {{"subject", chunk.subject_size()},
                 {"value", chunk.value_size()},
                 {"stream", chunk.stream_size()},
                 {"thread", chunk.thread_size()},
                 {"time_delta_ns", chunk.time_delta_ns_size()},
                 {"flags", chunk.flags_size()}};
  if (chunk.stack_plus_one_size() != 0 && chunk.stack_plus_one_size() != chunk.kind_size()) {
    return absl::StrCat("column stack: expected ", chunk.kind_size(), " values or none, found ",
                        chunk.stack_plus_one_size());
  }
  for (const auto& column : columns) {
    if (column.size != chunk.kind_size()) {
      return absl::StrCat("column ", column.name, ": expected ", chunk.kind_size(), " values, found ", column.size);
    }
  }
  return {};
}

std::string TraceRows::TakeMarks(const proto::TraceChunk& chunk, std::vector<Mark>* marks) const {
  marks->reserve(static_cast<std::size_t>(chunk.marks_size()));
  for (const proto::Mark& message : chunk.marks()) {
    if (std::string problem = FromMessage(message, &marks->emplace_back()); !problem.empty()) return problem;
  }
  return {};
}

std::string TraceRows::TakeStreams(const proto::TraceChunk& chunk, std::vector<StreamInfo>* streams) const {
  for (const proto::StreamInfo& message : chunk.streams()) {
    const std::uint64_t expected = streams_ + streams->size();
    if (message.ordinal() != expected) {
      return absl::StrCat("expected stream ordinal ", expected, ", found ", message.ordinal());
    }
    streams->push_back(FromMessage(message));
  }
  return {};
}

// What the row's subject refers to must exist.
std::string TraceRows::TakeSubject(std::uint64_t subject, std::uint64_t value, TraceEvent* event) {
  const std::uint64_t allocations = freed_.size();
  switch (event->kind) {
    case EventKind::kAlloc:
    case EventKind::kHeld: {
      const std::int64_t device = DecodeZigzag(subject);
      if (device < kCpuDevice || device > std::numeric_limits<DeviceIndex>::max()) {
        return absl::StrCat("impossible device ", device);
      }
      event->device = static_cast<DeviceIndex>(device);
      event->bytes = value;
      if (event->kind == EventKind::kAlloc) {
        event->allocation = allocations;
        freed_.push_back(false);
      }
      return {};
    }
    case EventKind::kFree:
    case EventKind::kRecordStream:
      if (subject >= allocations) return absl::StrCat("allocation ", subject, " of ", allocations, " so far");
      event->allocation = subject;
      if (event->kind == EventKind::kFree) {
        if (freed_[subject]) return absl::StrCat("allocation ", subject, " is freed twice");
        freed_[subject] = true;
        newly_freed_.push_back(subject);
      }
      return {};
    case EventKind::kMark:
      if (subject >= marks_) return absl::StrCat("mark ", subject, " of ", marks_, " so far");
      event->mark = static_cast<std::uint32_t>(subject);
      return {};
  }
  return "unknown event kind";
}

std::string TraceRows::TakeRow(const proto::TraceChunk& chunk, int row, TraceEvent* event) {
  const std::uint32_t kind = chunk.kind(row);
  if (kind < static_cast<std::uint32_t>(EventKind::kAlloc) || kind > static_cast<std::uint32_t>(EventKind::kHeld)) {
    return absl::StrCat("unknown event kind ", kind);
  }
  event->kind = static_cast<EventKind>(kind);
  event->stream = chunk.stream(row);
  event->thread = chunk.thread(row);
  event->flags = chunk.flags(row);
  if (chunk.stack_plus_one_size() != 0) event->stack_plus_one = chunk.stack_plus_one(row);
  if (event->stack_plus_one > calls_) {
    return absl::StrCat("call ", event->stack_plus_one - 1, " of ", calls_, " so far");
  }
  const bool has_stream = event->kind == EventKind::kAlloc || event->kind == EventKind::kRecordStream;
  if (has_stream && event->stream >= streams_) {
    return absl::StrCat("stream ordinal ", event->stream, " of ", streams_, " so far");
  }
  if (std::string problem = TakeSubject(chunk.subject(row), chunk.value(row), event); !problem.empty()) return problem;
  // Unsigned: a foreign file may hold any numbers, and their sum wraps.
  time_ns_ = static_cast<std::int64_t>(static_cast<std::uint64_t>(time_ns_) +
                                       static_cast<std::uint64_t>(chunk.time_delta_ns(row)));
  event->time_ns = time_ns_;
  return {};
}

std::string TraceRows::TakeCalls(const proto::StackCalls& message, std::vector<StackCall>* calls) const {
  const int count = message.parent_plus_one_size();
  if (message.function_size() != count || message.file_size() != count || message.line_size() != count) {
    return absl::StrCat("calls: expected columns of ", count, " values");
  }
  calls->reserve(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) {
    const std::uint64_t number = calls_ + static_cast<std::uint64_t>(i);
    if (message.parent_plus_one(i) > number) {
      return absl::StrCat("call ", number, ": parent ", message.parent_plus_one(i) - 1, " does not stand before it");
    }
    if (message.function(i) >= texts_ || message.file(i) >= texts_) {
      return absl::StrCat("call ", number, ": expected texts below ", texts_, ", found ", message.function(i), " and ",
                          message.file(i));
    }
    calls->push_back({message.parent_plus_one(i), message.function(i), message.file(i), message.line(i)});
  }
  return {};
}

// For what the file's rows so far, and those of the chunk in hand, refer to.
std::string TraceRows::TakeTensors(const proto::NamedTensors& message, std::vector<NamedTensor>* tensors) const {
  const int count = message.allocation_size();
  if (message.role_size() != count || message.name_size() != count || message.offset_size() != count ||
      message.bytes_size() != count) {
    return absl::StrCat("named tensors: expected columns of ", count, " values");
  }
  tensors->reserve(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) {
    if (message.allocation(i) >= freed_.size()) {
      return absl::StrCat("named tensor ", i, ": allocation ", message.allocation(i), " of ", freed_.size(), " so far");
    }
    if (message.name(i) >= texts_) {
      return absl::StrCat("named tensor ", i, ": text ", message.name(i), " of ", texts_, " so far");
    }
    if (message.role(i) == proto::TENSOR_UNSPECIFIED || !proto::TensorRole_IsValid(static_cast<int>(message.role(i)))) {
      return absl::StrCat("named tensor ", i, ": unknown role ", message.role(i));
    }
    tensors->push_back({.allocation = message.allocation(i),
                        .offset = message.offset(i),
                        .bytes = message.bytes(i),
                        .name = message.name(i),
                        .role = static_cast<TensorRole>(message.role(i))});
  }
  return {};
}

std::string TraceRows::TakeUses(const proto::BlockUses& message, std::uint64_t events,
                                std::vector<BlockUse>* uses) const {
  const int count = message.allocation_size();
  if (message.event_delta_size() != count || message.operation_size() != count) {
    return absl::StrCat("uses: expected columns of ", count, " values");
  }
  uses->reserve(static_cast<std::size_t>(count));
  std::uint64_t event = 0;
  for (int i = 0; i < count; ++i) {
    event += static_cast<std::uint64_t>(message.event_delta(i));  // a sum of foreign numbers wraps
    if (message.allocation(i) >= freed_.size()) {
      return absl::StrCat("use ", i, ": allocation ", message.allocation(i), " of ", freed_.size(), " so far");
    }
    if (event > events) return absl::StrCat("use ", i, ": event ", event, " of ", events, " so far");
    if (message.operation(i) >= texts_) {
      return absl::StrCat("use ", i, ": text ", message.operation(i), " of ", texts_, " so far");
    }
    uses->push_back({.allocation = message.allocation(i), .event = event, .operation = message.operation(i)});
  }
  return {};
}

std::string TraceRows::TakeRows(const proto::TraceChunk& chunk, Trace* trace) {
  for (int row = 0; row < chunk.kind_size(); ++row) {
    if (std::string problem = TakeRow(chunk, row, &trace->events.emplace_back()); !problem.empty()) {
      return absl::StrCat("row ", row, ": ", problem);
    }
  }
  return {};
}

// For the chunk's rows, which are the trace's from `first_row` on.
std::string TraceRows::TakeAddresses(const proto::TraceChunk& chunk, std::size_t first_row, Trace* trace) const {
  const auto& deltas = chunk.captured_address_delta();
  if (deltas.empty()) return {};
  std::vector<TraceEvent*> captured;
  for (std::size_t row = first_row; row < trace->events.size(); ++row) {
    TraceEvent& event = trace->events[row];
    if (event.kind == EventKind::kAlloc && (event.flags & kAllocCaptured) != 0) captured.push_back(&event);
  }
  if (static_cast<std::size_t>(deltas.size()) != captured.size()) {
    return absl::StrCat("column captured address: expected ", captured.size(),
                        " values, one for each captured allocation, or none, found ", deltas.size());
  }
  std::uint64_t address = 0;
  auto delta = deltas.begin();
  for (TraceEvent* event : captured) event->address = address += static_cast<std::uint64_t>(*delta++);
  return {};
}

std::string TraceRows::Append(const proto::TraceChunk& chunk, Trace* trace) {
  if (std::string problem = CheckColumns(chunk); !problem.empty()) return problem;
  std::vector<Mark> marks;
  if (std::string problem = TakeMarks(chunk, &marks); !problem.empty()) return problem;
  std::vector<StreamInfo> streams;
  if (std::string problem = TakeStreams(chunk, &streams); !problem.empty()) return problem;

  const std::size_t old_rows = trace->events.size();
  const std::size_t old_allocations = freed_.size();
  const std::int64_t old_time_ns = time_ns_;
  const auto texts = static_cast<std::uint64_t>(chunk.texts_size());
  marks_ += marks.size();
  streams_ += streams.size();
  texts_ += texts;
  std::vector<StackCall> calls;
  std::string problem = TakeCalls(chunk.calls(), &calls);
  const std::size_t new_calls = calls.size();
  calls_ += new_calls;
  std::vector<NamedTensor> tensors;
  std::vector<BlockUse> layer_inputs;
  newly_freed_.clear();
  uses_.clear();
  const std::uint64_t events = events_ + static_cast<std::uint64_t>(chunk.kind_size());
  if (problem.empty()) problem = TakeRows(chunk, trace);
  if (problem.empty()) problem = TakeAddresses(chunk, old_rows, trace);
  if (problem.empty()) problem = TakeTensors(chunk.tensors(), &tensors);
  if (problem.empty()) problem = TakeUses(chunk.uses(), events, &uses_);
  if (problem.empty()) {
    problem = TakeUses(chunk.layer_inputs(), events, &layer_inputs);
    if (!problem.empty()) problem = absl::StrCat("layer inputs: ", problem);
  }
  if (!problem.empty()) {
    trace->events.resize(old_rows);
    for (const std::uint64_t allocation : newly_freed_) freed_[allocation] = false;
    freed_.resize(old_allocations);
    time_ns_ = old_time_ns;
    marks_ -= marks.size();
    streams_ -= streams.size();
    texts_ -= texts;
    calls_ -= new_calls;
    return problem;
  }
  ++chunks_;
  events_ = events;
  trace->marks.insert(trace->marks.end(), marks.begin(), marks.end());
  trace->streams.insert(trace->streams.end(), streams.begin(), streams.end());
  trace->texts.insert(trace->texts.end(), chunk.texts().begin(), chunk.texts().end());
  trace->calls.insert(trace->calls.end(), calls.begin(), calls.end());
  trace->tensors.insert(trace->tensors.end(), tensors.begin(), tensors.end());
  trace->layer_inputs.insert(trace->layer_inputs.end(), layer_inputs.begin(), layer_inputs.end());
  if (chunk.has_fingerprint()) trace->fingerprint = FromMessage(chunk.fingerprint());
  trace->allocations = freed_.size();
  trace->live_before = std::max<std::uint64_t>(trace->live_before, chunk.live_before());
  return {};
}

}  // namespace stalloc
