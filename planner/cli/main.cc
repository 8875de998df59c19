// stalloc-planner: see commands.h.
#include <unistd.h>

#include <iostream>
#include <string>
#include <vector>

#include "planner/cli/commands.h"

int main(int argc, char** argv) {
  std::ios::sync_with_stdio(false);
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  // The console script `stalloc` starts it under its own name.
  const std::string path = argc > 0 ? argv[0] : "stalloc-planner";
  const std::string program = path.substr(path.rfind('/') + 1);
  const stalloc::planner::Streams streams{std::cout, std::cerr, isatty(STDERR_FILENO) != 0, program};
  const int code = stalloc::planner::RunCommandLine(arguments, streams);
  std::cout.flush();
  if (!std::cout) {
    std::cerr << program << ": cannot write to standard output\n";
    return stalloc::planner::kExitBadInput;
  }
  return code;
}
