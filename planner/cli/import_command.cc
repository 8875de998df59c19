// `stalloc-planner import`.
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iostream>
#include <string>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "planner/cli/commands.h"
#include "planner/cli/event_text.h"
#include "planner/cli/flags.h"
#include "proto/codec/trace_writer.h"

namespace stalloc::planner {
namespace {

absl::StatusOr<Trace> ReadFrom(const std::string& path) {
  if (path == "-") return ReadEventText(std::cin);
  std::ifstream file(path);
  if (!file) return absl::NotFoundError(absl::StrCat("cannot open: ", std::strerror(errno)));
  return ReadEventText(file);
}

int RunImport(const std::vector<std::string>& positional, Streams streams) {
  const std::string output = absl::GetFlag(FLAGS_output);
  if (positional.size() != 1 || !absl::EndsWith(output, ".trace")) {
    return FailUsage("import",
                     absl::StrCat("expected one FILE (or -) and --output=FILE.trace, found arguments: ",
                                  positional.size(), ", --output='", output, "'"),
                     streams);
  }
  const absl::StatusOr<Trace> trace = ReadFrom(positional[0]);
  if (!trace.ok()) {
    const absl::Status& status = trace.status();
    return FailInput("import", absl::Status(status.code(), absl::StrCat(positional[0], ": ", status.message())),
                     streams);
  }
  if (absl::Status status = WriteTraceFile(output, *trace); !status.ok()) {
    return FailInput("import", status, streams);
  }
  const std::size_t events = trace->events.size();
  streams.out << (absl::GetFlag(FLAGS_json)
                      ? absl::StrCat("{\"allocations\": ", trace->allocations, ", \"events\": ", events, "}\n")
                      : absl::StrCat(trace->allocations, " allocations, ", events, " events: ", output, "\n"));
  return kExitOk;
}

}  // namespace

const Command& ImportCommand() {
  static const Command command{
      {"import",
       "FILE",
       "Makes a trace from events in text; - reads standard input.",
       "One event a line; the first line is `stalloc-events 1`. Times are nanoseconds.\n"
       "  a ID BYTES DEVICE STREAM TIME [CALL]      allocation; ID: any number that no live block has\n"
       "  f ID TIME                                 its free\n"
       "  r ID STREAM TIME                          another stream uses the block, too\n"
       "  h DEVICE BYTES TIME                       what the allocator below holds\n"
       "  m KIND EDGE PASS CHUNK INDEX TIME [NAME]  mark: init, iteration, microbatch, optimizer, layer, fence;\n"
       "                                            begin, end; F, B, W, FB, O or -\n"
       "  t TEXT                                    a text, counted from 0\n"
       "  c PARENT LINE FILE FUNCTION               a call of a stack, counted from 1; numbers of texts\n"
       "  n ID OFFSET ROLE TEXT                     a tensor in a live block, by the number of its name: parameter,\n"
       "                                            gradient, optimizer_state, buffer, input or -\n"
       "  p ID POOL ADDRESS                         a live block is of a captured graph's pool: they count from 1\n"
       "  = KEY VALUE                               torch_version, device_name, device_bytes, world_size, rank, ...\n",
       {"output", "json"},
       "import events.txt --output=run1/trace/rank00000.trace\n"},
      RunImport};
  return command;
}

}  // namespace stalloc::planner
