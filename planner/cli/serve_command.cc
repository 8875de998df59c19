// `stalloc-planner serve`: answers questions about one trace, a JSON object a line in, one out.
#include <exception>
#include <iostream>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "planner/cli/commands.h"
#include "planner/cli/flags.h"
#include "planner/cli/session.h"
#include "planner/report/json_writer.h"

namespace stalloc::planner {
namespace {

std::string ErrorLine(const absl::Status& status) {
  JsonWriter json(JsonWriter::Style::kLine);
  json.BeginObject().Key("error").Value(std::string(status.message())).EndObject();
  return json.Take();
}

// What `call` throws, as out of memory on a huge trace, is an error of the request.
template <typename Call>
absl::StatusOr<std::string> Caught(const Call& call) {
  try {
    return call();
  } catch (const std::exception& failure) {
    return absl::ResourceExhaustedError(failure.what());
  }
}

int RunServe(const std::vector<std::string>& positional, Streams streams) {
  if (positional.size() > 1) {
    return FailUsage("serve", absl::StrCat("expected at most one TRACE, found arguments: ", positional.size()),
                     streams);
  }
  if (const std::string wrong = WrongBeside(); !wrong.empty()) return FailUsage("serve", wrong, streams);
  Session session({positional.empty() ? "" : positional[0], absl::GetFlag(FLAGS_beside), absl::GetFlag(FLAGS_ratio)});
  for (std::string line; std::getline(std::cin, line);) {
    const absl::StatusOr<std::string> answer = Caught([&] { return session.Answer(line); });
    streams.out << (answer.ok() ? *answer : ErrorLine(answer.status())) << std::flush;
  }
  return kExitOk;
}

}  // namespace

const Command& ServeCommand() {
  static const Command command{
      {"serve",
       "[TRACE]",
       "Answers questions about a trace: reads a JSON object a line, and prints one a line, until its input ends.",
       "A request is {\"request\": NAME, ...}: view, traced, search, play, plan; period needs no TRACE. What fails is "
       "answered by "
       "{\"error\": TEXT}.\n"
       "The trace is read by the first request, once. planner/README.md has the keys.\n",
       {"beside", "ratio"},
       "serve run1/trace/rank00000.trace\n"},
      RunServe};
  return command;
}

}  // namespace stalloc::planner
