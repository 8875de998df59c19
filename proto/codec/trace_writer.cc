#include "proto/codec/trace_writer.h"

#include <algorithm>

#include "proto/codec/frame.h"
#include "proto/codec/trace_chunk_writer.h"
#include "proto/codec/whole_file.h"

namespace stalloc {
namespace {

// Moves values[*next, end) into `out` and `*next` after them.
template <typename T>
void Introduce(const std::vector<T>& values, std::size_t end, std::size_t* next, std::vector<T>* out) {
  for (; *next < std::min(end, values.size()); ++*next) out->push_back(values[*next]);
}

class Encoder {
 public:
  Encoder(const Trace& trace, const TraceWriteOptions& options) : trace_(trace), options_(options) {
    chunk_.has_fingerprint = true;
    chunk_.fingerprint = trace.fingerprint;
    chunk_.live_before = trace.live_before;
    chunk_.texts = trace.texts;
    chunk_.calls = trace.calls;
  }

  std::string Run() {
    for (const TraceEvent& event : trace_.events) {
      Append(event);
      if (chunk_.rows() >= options_.chunk_events) Emit();
    }
    Introduce(trace_.marks, trace_.marks.size(), &marks_, &chunk_.marks);
    Introduce(trace_.streams, trace_.streams.size(), &streams_, &chunk_.streams);
    chunk_.tensors = trace_.tensors;
    chunk_.layer_inputs = trace_.layer_inputs;
    chunk_.uses = options_.uses;
    chunk_.last = trace_.complete;
    Emit();
    return std::move(bytes_);
  }

 private:
  void Append(const TraceEvent& event) {
    std::uint64_t subject = 0;
    std::uint64_t value = 0;
    switch (event.kind) {
      case EventKind::kAlloc:
      case EventKind::kHeld:
        subject = DeviceSubject(event.device);
        value = event.bytes;
        break;
      case EventKind::kFree:
      case EventKind::kRecordStream:
        subject = event.allocation;
        break;
      case EventKind::kMark:
        subject = event.mark;
        Introduce(trace_.marks, event.mark + std::size_t{1}, &marks_, &chunk_.marks);
        break;
    }
    if (event.kind == EventKind::kAlloc || event.kind == EventKind::kRecordStream) {
      Introduce(trace_.streams, event.stream + std::size_t{1}, &streams_, &chunk_.streams);
    }
    // Unsigned, as in the reader: the difference of any two times wraps.
    const auto delta =
        static_cast<std::int64_t>(static_cast<std::uint64_t>(event.time_ns) - static_cast<std::uint64_t>(time_ns_));
    chunk_.AppendRow(event.kind, subject, value, event.stream, event.thread, delta, event.flags);
    if (event.stack_plus_one != 0) chunk_.SetStack(event.stack_plus_one);
    chunk_.SetAddress(event.address);
    time_ns_ = event.time_ns;
  }

  void Emit() {
    AppendTraceFrame(chunk_, &bytes_);
    chunk_.StartNext();
  }

  const Trace& trace_;
  const TraceWriteOptions& options_;
  std::string bytes_{kTraceMagic};
  TraceChunk chunk_;
  std::size_t marks_ = 0;
  std::size_t streams_ = 0;
  std::int64_t time_ns_ = 0;
};

}  // namespace

std::string EncodeTrace(const Trace& trace, const TraceWriteOptions& options) { return Encoder(trace, options).Run(); }

absl::Status WriteTraceFile(const std::string& path, const Trace& trace, const TraceWriteOptions& options) {
  return WriteWholeFile(path, EncodeTrace(trace, options));
}

}  // namespace stalloc
