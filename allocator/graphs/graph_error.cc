#include "allocator/graphs/graph_error.h"

#include <array>
#include <cstdio>
#include <utility>

#include "allocator/base/log.h"

namespace stalloc {
namespace {

thread_local std::array<char, 512> t_refusal{};
thread_local bool t_is_taken = true;

const char* RefusalOf(LaunchListener::Verdict verdict) noexcept {
  switch (verdict) {
    case LaunchListener::Verdict::kOutOfMemory:
      return "out of memory: other tensors lie on bytes that the graph writes, and there is no memory to move them to; "
             "STALLOC_GRAPHS=apart keeps graphs' memory apart";
    case LaunchListener::Verdict::kCarriedGone:
      return "other tensors have used what an earlier graph of the pool leaves to it: launch the pool's graphs in the "
             "order in which they were captured, or set STALLOC_GRAPHS=apart";
    case LaunchListener::Verdict::kNotOrdered:
      return "its stream could not be made to wait for others that use bytes that the graph writes, or tensors of "
             "another thread lie there; STALLOC_GRAPHS=apart keeps graphs' memory apart";
    case LaunchListener::Verdict::kLaunch:
      break;
  }
  return "";
}

}  // namespace

const char* GraphError() noexcept { return t_refusal.data(); }
const char* TakeGraphError() noexcept { return std::exchange(t_is_taken, true) ? "" : t_refusal.data(); }

// Graphs of a pool are numbered from 1 on as they were captured.
void SetGraphError(const LaunchListener::Answer& answer, std::uint32_t pool, GraphId graph) noexcept {
  static LogThrottle throttle(3);
  t_is_taken = false;
  if (answer.giver != 0) {
    std::snprintf(
        t_refusal.data(), t_refusal.size(),
        "stalloc did not launch CUDA graph %u of pool %u: it reads what graph %u of the pool leaves to it, and "
        "graph %u was not launched since other tensors used those bytes. Launch graph %u first, or set "
        "STALLOC_GRAPHS=apart",
        graph, pool, answer.giver, answer.giver, answer.giver);
  } else {
    std::snprintf(t_refusal.data(), t_refusal.size(), "stalloc did not launch CUDA graph %u of pool %u: %s", graph,
                  pool, RefusalOf(answer.verdict));
  }
  if (throttle.Pass()) Log(LogSeverity::kError, "%s", t_refusal.data());
}

}  // namespace stalloc
