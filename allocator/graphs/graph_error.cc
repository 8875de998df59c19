#include "allocator/graphs/graph_error.h"

#include <array>
#include <cstdio>

#include "allocator/base/log.h"

namespace stalloc {
namespace {

thread_local std::array<char, 512> t_refusal{};

const char* RefusalOf(LaunchListener::Verdict verdict) noexcept {
  switch (verdict) {
    case LaunchListener::Verdict::kOutOfMemory:
      return "out of memory: other tensors lie on bytes that the graph writes, and there is no memory to move them to; "
             "STALLOC_GRAPHS=apart keeps graphs' memory apart";
    case LaunchListener::Verdict::kCarriedGone:
      return "what an earlier graph of the pool left for it was overwritten: graphs that share a pool are launched in "
             "the order in which they were captured, or STALLOC_GRAPHS=apart keeps their memory apart";
    case LaunchListener::Verdict::kNotOrdered:
      return "its stream could not be made to wait for others that use bytes that the graph writes";
    case LaunchListener::Verdict::kLaunch:
      break;
  }
  return "";
}

}  // namespace

const char* GraphError() noexcept { return t_refusal.data(); }

void SetGraphError(LaunchListener::Verdict verdict, std::uint32_t pool, GraphId graph) noexcept {
  static LogThrottle throttle(3);
  std::snprintf(t_refusal.data(), t_refusal.size(), "stalloc did not launch graph %u of pool %u: %s", graph, pool,
                RefusalOf(verdict));
  if (throttle.Pass()) Log(LogSeverity::kError, "%s", t_refusal.data());
}

}  // namespace stalloc
