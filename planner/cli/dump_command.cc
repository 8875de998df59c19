// `stalloc-planner dump`.
#include <cstdint>
#include <memory>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "planner/analysis/segments.h"
#include "planner/analysis/warnings.h"
#include "planner/cli/commands.h"
#include "planner/cli/flags.h"
#include "planner/cli/trace_text.h"
#include "proto/codec/trace_reader.h"

namespace stalloc::planner {
namespace {

// Prints chunk by chunk; memory grows with the number of allocations and marks only.
class Dumper {
 public:
  Dumper(TraceReader* reader, Streams streams)
      : reader_(reader),
        streams_(streams),
        writer_(absl::GetFlag(FLAGS_json) ? TraceTextWriter::Format::kJson : TraceTextWriter::Format::kText) {}

  absl::Status Dump() {
    while (true) {
      const absl::StatusOr<bool> more = reader_->ReadChunk(&trace_);
      if (!more.ok()) return more.status();
      streams_.out << writer_.NewCalls(trace_);
      for (const TraceEvent& event : trace_.events) {
        streams_.out << writer_.Line(event, trace_.marks);
        if (event.kind == EventKind::kMark) marks_.events.push_back(event);
      }
      trace_.events.clear();
      if (!*more || !streams_.out) return absl::OkStatus();
    }
  }

  void TellWhatIsMissing() {
    streams_.out.flush();
    if (!trace_.complete) {
      Warn("dump", absl::StrCat("the trace was not ended in order: ", trace_.truncation), streams_);
    }
    marks_.marks = trace_.marks;
    const MarkFindings findings = MissingMarks(CutAtMarks(marks_).census);
    for (const std::string& warning : findings.warnings) Warn("dump", warning, streams_);
    for (const std::string& note : findings.notes) {
      streams_.err << streams_.program << " dump: note: " << note << "\n";
    }
  }

 private:
  TraceReader* reader_;
  Streams streams_;
  TraceTextWriter writer_;
  Trace trace_;
  Trace marks_;  // only the marks of the trace
};

int RunDump(const std::vector<std::string>& positional, Streams streams) {
  if (positional.size() != 1) {
    return FailUsage("dump", absl::StrCat("expected one TRACE, found arguments: ", positional.size()), streams);
  }
  const absl::StatusOr<std::unique_ptr<TraceReader>> reader = TraceReader::Open(positional[0]);
  if (!reader.ok()) return FailInput("dump", reader.status(), streams);
  Dumper dumper(reader->get(), streams);
  if (absl::Status status = dumper.Dump(); !status.ok()) return FailInput("dump", status, streams);
  dumper.TellWhatIsMissing();
  return kExitOk;
}

}  // namespace

const Command& DumpCommand() {
  static const Command command{
      {"dump",
       "TRACE",
       "Prints a trace as text, one event a line; says which marks are missing and what that costs.",
       "  1 <id> <bytes> <stream>   allocation; ids count allocations from 0\n"
       "  0 <id> <bytes> <stream>   its free\n"
       "  2 <id> <bytes> <stream>   record_stream: the block is also used by this stream\n"
       "  3 <device> <bytes>        what the allocator below held on the device at this point\n"
       "  # device <n>              the device of what follows changed (at first it is 0)\n"
       "  Iteration Index : N       Iteration End : N\n"
       "  micro-batch : F chunk 0 index 0     also B, W, FB, O; F-end where it ends\n"
       "  <name> Layer : F-start    F-end, B-start, B-end\n"
       "  Optimizer : start, Init : start, Fence <name> : start; and end\n"
       "Streams are ordinals in order of first appearance. (automatic) follows marks that a hook placed.\n"
       "With --json each line is an object.\n",
       {"json"},
       "dump run1/trace/rank00000.trace | less\n"},
      RunDump};
  return command;
}

}  // namespace stalloc::planner
