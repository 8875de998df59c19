#include "allocator/record/trace_assembler.h"

#include <utility>

namespace stalloc {

void TraceAssembler::Add(const RecordedEvent& event, Mark* mark) {
  if (before_ != nullptr) {
    event.kind == RecordedKind::kBegin ? Begin(event) : before_->Take(event, mark);
    return;
  }
  switch (event.kind) {
    case RecordedKind::kAlloc:
      AddAllocation(event);
      break;
    case RecordedKind::kFree:
      AddFree(event);
      break;
    case RecordedKind::kRecordStream:
      AddStreamUse(event);
      break;
    case RecordedKind::kMark:
      chunk_.marks.push_back(std::move(*mark));
      AppendRow(event, EventKind::kMark, marks_++, 0, 0);
      break;
    case RecordedKind::kHeld:
      AppendRow(event, EventKind::kHeld, DeviceSubject(event.device), event.value, 0);
      break;
    case RecordedKind::kTensor:
      AddTensor(event);
      break;
    case RecordedKind::kUse:
      AddUse(event);
      break;
    case RecordedKind::kBegin:
      break;
  }
}

void TraceAssembler::Begin(const RecordedEvent& event) {
  const std::unique_ptr<LiveBefore> before = std::move(before_);
  before->ForEach(event.time_ns, [this](const RecordedEvent& earlier, Mark* mark) { Add(earlier, mark); });
  chunk_.live_before = allocations_;
}

void TraceAssembler::AddAllocation(const RecordedEvent& event) {
  if (Live* old = live_.Find(event.subject); old != nullptr) {
    ++unpaired_;
    AppendRow(event, EventKind::kFree, old->allocation, 0, 0);
  }
  live_.Insert(event.subject,
               {.allocation = allocations_++, .device = event.device, .time_ns = event.time_ns, .row = rows()});
  AppendRow(event, EventKind::kAlloc, DeviceSubject(event.device), event.value,
            StreamOrdinal(event.device, event.stream));
  if (event.stack != 0) chunk_.SetStack(event.stack);
  chunk_.SetAddress(event.subject);
}

void TraceAssembler::AddFree(const RecordedEvent& event) {
  const std::optional<Live> live = live_.Erase(event.subject);
  if (!live.has_value()) {
    ++unpaired_;
    return;
  }
  AppendRow(event, EventKind::kFree, live->allocation, 0, 0);
}

void TraceAssembler::AddStreamUse(const RecordedEvent& event) {
  const Live* live = live_.Find(event.subject);
  if (live == nullptr) {
    ++unpaired_;
    return;
  }
  AppendRow(event, EventKind::kRecordStream, live->allocation, 0, StreamOrdinal(live->device, event.stream));
}

// For another device's blocks, or from before the recorder, there is nothing to say.
void TraceAssembler::AddTensor(const RecordedEvent& event) {
  const Live* live = live_.Find(event.subject);
  constexpr unsigned kNameBits = 24;
  if (live == nullptr || !named_.insert(live->allocation << kNameBits | event.thread).second) return;
  chunk_.tensors.push_back({.allocation = live->allocation,
                            .offset = event.stream,
                            .bytes = event.value,
                            .name = event.thread,
                            .role = static_cast<TensorRole>(event.flags)});
}

void TraceAssembler::AddLayerInput(const RecordedEvent& event) {
  const Live* const block = live_.Find(event.subject);
  if (block == nullptr) return;
  chunk_.layer_inputs.push_back({.allocation = block->allocation, .event = rows(), .operation = event.thread});
}

// What an operation allocates and returns, it has used since: which kernel wrote it when is not known.
void TraceAssembler::AddUse(const RecordedEvent& event) {
  if (event.flags == static_cast<std::uint32_t>(UseKind::kLayerInput)) return AddLayerInput(event);
  Live* block = live_.Find(event.subject);
  if (block == nullptr) return;
  if (block->time_ns >= static_cast<std::int64_t>(event.value)) {
    if (event.flags != static_cast<std::uint32_t>(UseKind::kResult)) return;
    if (block->used_at == 0) AppendUse(*block, block->row + 1, event.thread);
  }
  AppendUse(*block, rows(), event.thread);
}

void TraceAssembler::AppendUse(Live& block, std::uint64_t at, std::uint32_t operation) {
  if (block.used_at == at && block.used_by == operation) return;
  block.used_at = at;
  block.used_by = operation;
  chunk_.uses.push_back({.allocation = block.allocation, .event = at, .operation = operation});
}

void TraceAssembler::AppendRow(const RecordedEvent& event, EventKind kind, std::uint64_t subject, std::uint64_t value,
                               std::uint32_t stream) {
  if (!started_) {
    chunk_.time_origin_ns = static_cast<std::uint64_t>(event.time_ns);
    time_ns_ = event.time_ns;
    started_ = true;
  }
  chunk_.AppendRow(kind, subject, value, stream, ThreadOrdinal(event.thread), event.time_ns - time_ns_, event.flags);
  time_ns_ = event.time_ns;
}

std::uint32_t TraceAssembler::StreamOrdinal(DeviceIndex device, StreamHandle handle) {
  for (const StreamInfo& stream : streams_) {
    if (stream.handle == handle && stream.device == device) return stream.ordinal;
  }
  const StreamInfo added{.ordinal = static_cast<std::uint32_t>(streams_.size()), .device = device, .handle = handle};
  streams_.push_back(added);
  chunk_.streams.push_back(added);
  return added.ordinal;
}

std::uint32_t TraceAssembler::ThreadOrdinal(std::uint32_t token) {
  if (const std::uint32_t* ordinal = threads_.Find(token); ordinal != nullptr) return *ordinal;
  const auto ordinal = static_cast<std::uint32_t>(threads_.size());
  threads_.Insert(token, ordinal);
  return ordinal;
}

}  // namespace stalloc
