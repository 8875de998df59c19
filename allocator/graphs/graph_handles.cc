#include "allocator/graphs/graph_handles.h"

#include <mutex>

namespace stalloc {

void GraphHandles::CaptureBegins(Handle stream, const Capture& capture) noexcept {
  const std::lock_guard lock(mutex_);
  streams_.Insert(stream, capture);
}

std::optional<GraphHandles::Capture> GraphHandles::CaptureEnds(Handle stream) noexcept {
  const std::lock_guard lock(mutex_);
  return streams_.Erase(stream);
}

// The new one is counted first: where both are of one capture, that is not gone in between.
std::optional<GraphHandles::Capture> GraphHandles::Set(OpenTable<Capture>& table, Handle handle,
                                                       const std::optional<Capture>& capture) noexcept {
  const std::optional<Capture> before = table.Erase(handle);
  if (capture.has_value()) {
    table.Insert(handle, *capture);
    if (std::uint32_t* const count = handle_counts_.Find(KeyOf(*capture)); count != nullptr) {
      ++*count;
    } else {
      handle_counts_.Insert(KeyOf(*capture), 1);
    }
  }
  if (!before.has_value()) return std::nullopt;
  std::uint32_t* const count = handle_counts_.Find(KeyOf(*before));
  if (count == nullptr || --*count > 0) return std::nullopt;
  handle_counts_.EraseFound(count);
  return before;
}

std::optional<GraphHandles::Capture> GraphHandles::SetGraph(Handle graph,
                                                            const std::optional<Capture>& capture) noexcept {
  const std::lock_guard lock(mutex_);
  return Set(graphs_, graph, capture);
}

std::optional<GraphHandles::Capture> GraphHandles::SetExecutable(Handle executable,
                                                                 const std::optional<Capture>& capture) noexcept {
  const std::lock_guard lock(mutex_);
  const std::optional<Capture> gone = Set(executables_, executable, capture);
  executable_count_.store(executables_.size(), std::memory_order_relaxed);
  return gone;
}

std::optional<GraphHandles::Capture> GraphHandles::OfGraph(Handle graph) const noexcept {
  const std::lock_guard lock(mutex_);
  const Capture* const found = graphs_.Find(graph);
  return found == nullptr ? std::nullopt : std::optional(*found);
}

}  // namespace stalloc
