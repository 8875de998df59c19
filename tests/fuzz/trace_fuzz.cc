// The reader of trace files. What it accepts refers only to what it has, frees nothing twice, and comes back equal from
// what EncodeTrace makes of it; errors and reports of truncation name the file.
#include <sys/mman.h>
#include <unistd.h>

#include <limits>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/codec/trace_reader.h"
#include "proto/codec/trace_writer.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/quiet_protobuf.h"
#include "tests/proto/random_formats.h"

namespace stalloc::fuzz {
namespace {

// A file in memory, for a reader that wants a path.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view bytes) : fd_(memfd_create("fuzz.trace", MFD_CLOEXEC)) {
    Require(fd_ >= 0 && write(fd_, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()),
            "a file is there");
  }
  ~MemoryFile() { close(fd_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  [[nodiscard]] std::string path() const { return absl::StrCat("/proc/self/fd/", fd_); }

 private:
  const int fd_;
};

void CheckReferences(const Trace& trace) {
  std::vector<bool> freed;
  for (const TraceEvent& event : trace.events) {
    const bool has_stream = event.kind == EventKind::kAlloc || event.kind == EventKind::kRecordStream;
    Require(!has_stream || event.stream < trace.streams.size(), "streams are listed");
    Require(event.stack_plus_one <= trace.calls.size(), "calls are listed");
    if (event.kind == EventKind::kAlloc) {
      Require(event.allocation == freed.size(), "allocations are numbered in order");
      freed.push_back(false);
    }
    if (event.kind == EventKind::kFree || event.kind == EventKind::kRecordStream) {
      Require(event.allocation < freed.size(), "allocations exist");
    }
    if (event.kind == EventKind::kFree) {
      Require(!freed[event.allocation], "nothing is freed twice");
      freed[event.allocation] = true;
    }
    Require(event.kind != EventKind::kMark || event.mark < trace.marks.size(), "marks are listed");
  }
  Require(freed.size() == trace.allocations, "allocations are counted");
  for (const NamedTensor& tensor : trace.tensors) {
    Require(tensor.allocation < trace.allocations && tensor.name < trace.texts.size(),
            "named tensors refer to what is");
  }
  for (std::size_t i = 0; i < trace.calls.size(); ++i) {
    const StackCall& call = trace.calls[i];
    Require(call.parent_plus_one <= i && call.function < trace.texts.size() && call.file < trace.texts.size(),
            "calls refer to what is before them");
  }
}

void CheckComesBack(const Trace& trace) {
  for (const std::size_t chunk : {std::size_t{3}, std::size_t{1} << 14}) {
    const MemoryFile file(EncodeTrace(trace, {.chunk_events = chunk}));
    const absl::StatusOr<Trace> again = ReadTrace(file.path());
    Require(again.ok(), "what was accepted can be written and read again");
    Require(again->fingerprint == trace.fingerprint && again->marks == trace.marks && again->streams == trace.streams,
            "fingerprint, marks and streams come back equal");
    Require(again->events == trace.events && again->allocations == trace.allocations, "events come back equal");
    Require(again->texts == trace.texts && again->tensors == trace.tensors && again->calls == trace.calls,
            "texts, named tensors and calls come back equal");
    Require(again->complete == trace.complete, "a trace without an end comes back without one");
  }
}

bool Accepts(std::string_view bytes) {
  const MemoryFile file(bytes);
  const absl::StatusOr<Trace> trace = ReadTrace(file.path());
  if (!trace.ok()) {
    Require(absl::StartsWith(trace.status().message(), file.path() + ": "), "errors name the file");
    return false;
  }
  Require(trace->complete == trace->truncation.empty(), "what is not complete is said to be truncated");
  Require(trace->complete || absl::StartsWith(trace->truncation, file.path() + " "), "truncations name the file");
  CheckReferences(*trace);
  CheckComesBack(*trace);
  return true;
}

}  // namespace

std::vector<std::string> Seeds() {
  std::vector<std::string> seeds;
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    RandomFormats random(seed);
    Trace trace = random.MakeTrace(20 * seed);
    trace.complete = seed % 4 != 3;
    if (seed % 2 == 1) {  // clocks that jump from end to end
      trace.events.front().time_ns = std::numeric_limits<std::int64_t>::max();
      trace.events.back().time_ns = std::numeric_limits<std::int64_t>::min();
    }
    seeds.push_back(EncodeTrace(trace, {.chunk_events = 1 + random.Below(40)}));
  }
  return seeds;
}

}  // namespace stalloc::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace stalloc::fuzz;  // NOLINT
  [[maybe_unused]] static const bool quiet = QuietProtobuf();
  const std::string_view file(reinterpret_cast<const char*>(data), size);
  const bool raw = Accepts(file);
  return Accepts(WithRightFrames(file)) || raw ? 0 : -1;
}
