// Ctrl-C: the first stops the solvers with the best packing so far, the second ends the process.
#pragma once

#include <atomic>

namespace stalloc::planner {

// Installs the handler for SIGINT and SIGTERM on the first call. The flag lives for ever.
[[nodiscard]] const std::atomic<bool>* StopOnInterrupt();

}  // namespace stalloc::planner
