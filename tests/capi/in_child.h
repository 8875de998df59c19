// Runs a case in a process of its own that has loaded libstalloc.so: a process opens one session, and CUDA does not
// survive a fork.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/capi/stalloc_library.h"

namespace stalloc {

using Environment = std::vector<std::pair<std::string, std::string>>;

// `body` runs in the child; what it returns comes back ("" is success), with the exit status where that is not 0. The
// library is the one that STALLOC_LIBRARY names.
inline std::string InChild(const Environment& environment,
                           const std::function<std::string(const StallocLibrary&)>& body) {
  int channel[2];
  if (pipe(channel) != 0) return "no pipe";
  const pid_t child = fork();
  if (child == 0) {
    for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
    const char* const path = std::getenv("STALLOC_LIBRARY");
    const StallocLibrary library(path == nullptr ? "libstalloc.so" : path);
    const std::string result = body(library);
    (void)!write(channel[1], result.data(), result.size());
    std::exit(0);  // with the handlers that the library registered
  }
  close(channel[1]);
  std::string result;
  char buffer[4096];
  for (ssize_t count; (count = read(channel[0], buffer, sizeof(buffer))) > 0;) {
    result.append(buffer, static_cast<std::size_t>(count));
  }
  close(channel[0]);
  int status = 0;
  waitpid(child, &status, 0);
  return status == 0 ? result : result + " (status " + std::to_string(status) + ")";
}

}  // namespace stalloc
