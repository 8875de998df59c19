// The commands of stalloc-planner. Each parses its own arguments, prints results on `out` and the rest on `err`, and
// returns the exit code: 0 ok, 1 bad input or infeasible, 2 usage.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "planner/cli/arguments.h"

namespace stalloc::planner {

inline constexpr int kExitOk = 0;
inline constexpr int kExitBadInput = 1;
inline constexpr int kExitUsage = 2;

struct Streams {
  std::ostream& out;
  std::ostream& err;
  bool err_is_terminal = false;
  std::string program = "stalloc-planner";  // as whom it was called, which lines on `err` begin with
};

struct Command {
  CommandSyntax syntax;
  int (*run)(const std::vector<std::string>& positional, Streams streams);
};

[[nodiscard]] const Command& PlanCommand();
[[nodiscard]] const Command& DumpCommand();
[[nodiscard]] const Command& ImportCommand();
[[nodiscard]] const Command& PackCommand();
[[nodiscard]] const Command& CheckCommand();
[[nodiscard]] const Command& SynthCommand();
[[nodiscard]] const Command& ServeCommand();

// A whole command line without the program's name.
[[nodiscard]] int RunCommandLine(const std::vector<std::string>& arguments, Streams streams);

// Print one line on `err`, "stalloc plan: ...", and give the exit code.
int FailUsage(const std::string& command, const std::string& problem, Streams streams);
int FailInput(const std::string& command, const absl::Status& status, Streams streams);
// One line on `err`: "stalloc plan: warning: ...".
void Warn(const std::string& command, const std::string& text, Streams streams);

}  // namespace stalloc::planner
