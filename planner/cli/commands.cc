#include "planner/cli/commands.h"

#include "absl/flags/flag.h"
#include "planner/cli/flags.h"
#include "planner/cli/version.h"

ABSL_FLAG(bool, json, false, "Print JSON instead of text.");

namespace stalloc::planner {
namespace {

std::vector<const Command*> AllCommands() {
  return {&PlanCommand(), &DumpCommand(),  &CheckCommand(), &ImportCommand(),
          &PackCommand(), &SynthCommand(), &ServeCommand()};
}

void PrintUsage(const std::string& program, std::ostream& out) {
  out << program << " " << Version() << ": plans the memory of a training run from a trace of its first iterations.\n\n"
      << "usage: " << program << " COMMAND ... | --help | --version\n\n";
  for (const Command* command : AllCommands()) {
    out << "  " << command->syntax.name << std::string(8 - command->syntax.name.size(), ' ') << command->syntax.purpose
        << "\n";
  }
  out << "\n`" << program
      << " COMMAND --help` describes a command. Exit codes: 0 ok, 1 bad input or infeasible, 2 usage.\n";
}

int RunCommand(const Command& command, const std::vector<std::string>& arguments, Streams streams) {
  if (AsksForHelp(arguments)) {
    streams.out << HelpText(command.syntax, streams.program);
    return kExitOk;
  }
  const absl::StatusOr<std::vector<std::string>> positional = ParseArguments(command.syntax, arguments);
  if (!positional.ok()) {
    return FailUsage(command.syntax.name, std::string(positional.status().message()), streams);
  }
  return command.run(*positional, streams);
}

}  // namespace

int RunCommandLine(const std::vector<std::string>& arguments, Streams streams) {
  if (arguments.empty()) {
    PrintUsage(streams.program, streams.err);
    return kExitUsage;
  }
  if (arguments[0] == "--help" || arguments[0] == "-h" || arguments[0] == "help") {
    PrintUsage(streams.program, streams.out);
    return kExitOk;
  }
  if (arguments[0] == "--version") {
    streams.out << streams.program << " " << Version() << "\n";
    return kExitOk;
  }
  for (const Command* command : AllCommands()) {
    if (command->syntax.name == arguments[0]) {
      return RunCommand(*command, {arguments.begin() + 1, arguments.end()}, streams);
    }
  }
  streams.err << streams.program << ": unknown command: " << arguments[0] << "\n";
  PrintUsage(streams.program, streams.err);
  return kExitUsage;
}

int FailUsage(const std::string& command, const std::string& problem, Streams streams) {
  streams.err << streams.program << " " << command << ": " << problem << "\n"
              << "`" << streams.program << " " << command << " --help` describes its arguments.\n";
  return kExitUsage;
}

int FailInput(const std::string& command, const absl::Status& status, Streams streams) {
  streams.err << streams.program << " " << command << ": " << status.message() << "\n";
  return kExitBadInput;
}

void Warn(const std::string& command, const std::string& text, Streams streams) {
  streams.err << streams.program << " " << command << ": warning: " << text << "\n";
}

}  // namespace stalloc::planner
