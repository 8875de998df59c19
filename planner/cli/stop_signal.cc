#include "planner/cli/stop_signal.h"

#include <csignal>

namespace stalloc::planner {
namespace {

std::atomic<bool> stop_requested{false};
static_assert(std::atomic<bool>::is_always_lock_free);

void RequestStop(int signal) {
  stop_requested.store(true, std::memory_order_relaxed);
  std::signal(signal, SIG_DFL);
}

}  // namespace

const std::atomic<bool>* StopOnInterrupt() {
  static const bool installed = [] {
    std::signal(SIGINT, RequestStop);
    std::signal(SIGTERM, RequestStop);
    return true;
  }();
  return installed ? &stop_requested : nullptr;
}

}  // namespace stalloc::planner
