// Command lines: flags of Abseil, but only those that a command takes, with exit codes of our own.
//
// `--name=value`, `--name value`, `--name` and `--noname` for booleans; dashes and underscores in names are alike; `--`
// ends the flags. absl::ParseCommandLine would exit(1) by itself and would offer every command every flag. Not
// thread-safe: flags are global; parse once.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace stalloc::planner {

// What a command takes.
struct CommandSyntax {
  std::string name;
  std::string positional;  // as shown by usage: "DIR"
  std::string purpose;
  std::string details;  // further lines of help; may be empty
  std::vector<std::string>
      flags;             // names of ABSL_FLAGs, with underscores; what is `so` in a flag's help names its value
  std::string examples;  // command lines, as "plan run1\n": without the program
};

// Sets the flags and returns the positional arguments. InvalidArgument names the argument and what is allowed.
[[nodiscard]] absl::StatusOr<std::vector<std::string>> ParseArguments(const CommandSyntax& syntax,
                                                                      const std::vector<std::string>& arguments);

// --help or -h is among the flags.
[[nodiscard]] bool AsksForHelp(const std::vector<std::string>& arguments);

// `program`: as whom it was called.
[[nodiscard]] std::string HelpText(const CommandSyntax& syntax, const std::string& program);

}  // namespace stalloc::planner
