// stalloc-planner: see commands.h.
#include <unistd.h>

#include <iostream>
#include <string>
#include <vector>

#include "planner/cli/commands.h"

int main(int argc, char** argv) {
  std::ios::sync_with_stdio(false);
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const stalloc::planner::Streams streams{std::cout, std::cerr, isatty(STDERR_FILENO) != 0};
  const int code = stalloc::planner::RunCommandLine(arguments, streams);
  std::cout.flush();
  if (!std::cout) {
    std::cerr << "stalloc-planner: cannot write to standard output\n";
    return stalloc::planner::kExitBadInput;
  }
  return code;
}
